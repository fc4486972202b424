/* What a forked child inherits and what not: open files without a name, and no locks. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static azekura_file *file, *lost;
static int to_child[2], to_parent[2];

static void tell(int fd)
{
	HOLDS(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
	char word;

	HOLDS(read(fd, &word, 1) == 1);
}

static void child(void)
{
	char text[8];

	/* A first call; from here on the child has the file open by itself. */
	IS(azekura_pread(file, text, sizeof text, 0), 4);
	FAILS(azekura_lock(file, AZEKURA_LOCK_EXCLUSIVE, 0, 0, 0), EAGAIN, "another owner");
	FAILS(azekura_lock_file(file, AZEKURA_LOCK_SHARED, 0), EAGAIN, "another owner");
	tell(to_parent[1]);
	hear(to_child[0]);
	/* The parent has closed it meanwhile. */
	IS(azekura_pread(file, text, sizeof text, 0), 4);
	OK(azekura_lock(file, AZEKURA_LOCK_EXCLUSIVE, 0, 0, 0));
	OK(azekura_close(file));
	_exit(0);
}

int main(int argc, char **argv)
{
	azekura_container *container;
	azekura_pool *pool;
	int state;

	HOLDS(argc == 2 && pipe(to_child) == 0 && pipe(to_parent) == 0);
	OK(azekura_pool_open(argv[1], NULL, &pool));
	OK(azekura_container_open(pool, "default", 0, &container));
	OK(azekura_open(container, "/", O_TMPFILE | O_RDWR, 0600, &file));
	IS(azekura_pwrite(file, "kept", 4, 0), 4);
	OK(azekura_lock(file, AZEKURA_LOCK_EXCLUSIVE, 0, 0, 0));
	OK(azekura_lock_file(file, AZEKURA_LOCK_EXCLUSIVE, 0));
	if (fork() == 0)
		child();
	hear(to_parent[0]);
	OK(azekura_close(file));
	OK(azekura_open(container, "/", O_TMPFILE | O_RDWR, 0600, &lost));
	OK(azekura_close(lost));
	tell(to_child[1]);
	HOLDS(wait(&state) > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0);
	OK(azekura_container_close(container));
	OK(azekura_pool_close(pool));
	return 0;
}
