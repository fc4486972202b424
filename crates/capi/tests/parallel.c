/*
 * Threads and forks at once: 8 threads use one pool, container, file and object without pause while
 * the process forks children, and every child uses all of them too, also from a thread of its own.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CHILDREN = 100, AT_ONCE = 10 };

static azekura_container *container;
static azekura_object *object;
static azekura_file *file;
static atomic_int stop;
static atomic_long rounds;

/* One round of everything; `number` keeps those who are at it apart. */
static void once(long number)
{
	uint64_t place = (uint64_t)number * 4096;
	char path[64], key[32], out[4096], in[4096];
	size_t key_bytes = (size_t)sprintf(key, "key %ld", number);
	struct azekura_stat stat;

	memset(out, (int)number, sizeof out);
	sprintf(path, "/dir/%ld", number);
	IS(azekura_pwrite(file, out, sizeof out, place), sizeof out);
	IS(azekura_pread(file, in, sizeof in, place), sizeof in);
	HOLDS(memcmp(in, out, sizeof in) == 0);
	OK(azekura_kv_put(object, key, key_bytes, "a", 1, out, 100, 0));
	IS(azekura_kv_get(object, key, key_bytes, "a", 1, in, sizeof in), 100);
	OK(azekura_array_write(object, out, sizeof out, place));
	IS(azekura_array_read(object, in, sizeof in, place), sizeof in);
	OK(azekura_mkdir(container, path, 0755));
	OK(azekura_stat(container, path, &stat));
	OK(azekura_rmdir(container, path));
	/* The message belongs to the thread. */
	FAILS(azekura_unlink(container, path), ENOENT, path);
}

static void *worker(void *argument)
{
	long number = *(long *)argument;

	while (!atomic_load(&stop)) {
		once(number);
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

static void *of_child(void *argument)
{
	once(*(long *)argument);
	return NULL;
}

static void child(long number)
{
	pthread_t thread;
	long other = number + 1000;

	HOLDS(pthread_create(&thread, NULL, of_child, &other) == 0);
	once(number);
	pthread_join(thread, NULL);
	OK(azekura_close(file));
	OK(azekura_object_close(object));
	OK(azekura_container_close(container));
	_exit(0);
}

static void reap(int *left)
{
	int state;

	HOLDS(wait(&state) > 0);
	HOLDS(WIFEXITED(state) && WEXITSTATUS(state) == 0);
	--*left;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long numbers[THREADS], number;
	azekura_pool *pool;
	int left = 0;

	HOLDS(argc == 2);
	OK(azekura_pool_open(argv[1], NULL, &pool));
	OK(azekura_container_open(pool, "default", 0, &container));
	OK(azekura_mkdirs(container, "/dir", 0755));
	OK(azekura_open(container, "/parallel", O_RDWR | O_CREAT, 0644, &file));
	OK(azekura_object_create(container, AZEKURA_SX, 4096, 0, &object));
	for (number = 0; number < THREADS; number++) {
		numbers[number] = number;
		HOLDS(pthread_create(&threads[number], NULL, worker, &numbers[number]) == 0);
	}
	for (number = 0; number < CHILDREN; number++) {
		pid_t pid = fork();

		HOLDS(pid >= 0);
		if (pid == 0)
			child(100 + number);
		if (++left == AT_ONCE)
			reap(&left);
	}
	while (left > 0)
		reap(&left);
	atomic_store(&stop, 1);
	for (number = 0; number < THREADS; number++)
		pthread_join(threads[number], NULL);
	HOLDS(atomic_load(&rounds) > THREADS);
	/* What the children did is here, and the parent's handles are whole. */
	once(1);
	IS(azekura_kv_get(object, "key 199", 7, "a", 1, NULL, 0), 100);
	IS(azekura_kv_get(object, "key 1199", 8, "a", 1, NULL, 0), 100);
	OK(azekura_unlink(container, "/parallel"));
	OK(azekura_close(file));
	OK(azekura_object_remove(object));
	OK(azekura_object_close(object));
	OK(azekura_container_close(container));
	OK(azekura_pool_close(pool));
	return 0;
}
