/*
 * A pool that goes away: opens everything, says "ready", waits for a line, by when the engines are
 * gone (or frozen, which takes longer to find out), and expects every family of calls to fail in
 * bounded time with a message that helps. After a second line the pool is back, and everything goes
 * on with the same handles.
 */
#include "check.h"

#include <fcntl.h>

static azekura_container *container;
static azekura_object *object;
static azekura_pool *pool;
static azekura_file *file;

static void every_family(const char *name)
{
	struct azekura_pool_options options = AZEKURA_POOL_OPTIONS_INIT;
	struct azekura_stat stat;
	struct azekura_space space;
	azekura_pool *second;
	azekura_file *none;
	char room[8] = "after";

	options.timeout_ms = 500;
	FAILS(azekura_pwrite(file, room, 6, 0), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_stat(container, "/outage", &stat), ETIMEDOUT, "'/outage': engine 0 of pool");
	FAILS(azekura_open(container, "/x", O_RDONLY, 0, &none), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_kv_get(object, "d", 1, "a", 1, room, 8), ETIMEDOUT, "object ");
	FAILS(azekura_kv_put(object, "d", 1, "a", 1, room, 1, 0), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_array_size(object), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_pool_space(pool, &space), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_container_sync(container), ETIMEDOUT, "cannot be reached");
	FAILS(azekura_pool_open(name, &options, &second), ETIMEDOUT, "cannot be reached");
	HOLDS(second == NULL);
	options.flags = AZEKURA_POOL_LAZY;
	OK(azekura_pool_open(name, &options, &second));
	OK(azekura_pool_close(second));
}

int main(int argc, char **argv)
{
	struct azekura_pool_options options = AZEKURA_POOL_OPTIONS_INIT;
	struct azekura_stat stat;
	char line[16], room[8];

	HOLDS(argc == 3);
	options.timeout_ms = 500;
	OK(azekura_pool_open(argv[1], &options, &pool));
	OK(azekura_container_open(pool, "default", AZEKURA_NO_CACHE, &container));
	OK(azekura_open(container, "/outage", O_RDWR | O_CREAT, 0644, &file));
	IS(azekura_pwrite(file, "before", 6, 0), 6);
	OK(azekura_object_create(container, AZEKURA_S2, 0, 0, &object));
	OK(azekura_kv_put(object, "d", 1, "a", 1, "before", 6, 0));
	puts("ready");
	fflush(stdout);
	HOLDS(fgets(line, sizeof line, stdin) != NULL);
	FAILS(azekura_pread(file, room, 6, 0), ETIMEDOUT, "azekura status");
	if (strcmp(argv[2], "killed") == 0)
		every_family(argv[1]);
	puts("gone");
	fflush(stdout);
	HOLDS(fgets(line, sizeof line, stdin) != NULL);
	IS(azekura_pread(file, room, 6, 0), 6);
	HOLDS(memcmp(room, "before", 6) == 0);
	IS(azekura_kv_get(object, "d", 1, "a", 1, room, 8), 6);
	OK(azekura_stat(container, "/outage", &stat));
	OK(azekura_close(file));
	OK(azekura_object_close(object));
	OK(azekura_container_close(container));
	OK(azekura_pool_close(pool));
	return 0;
}
