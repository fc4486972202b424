/*
 * Files: writes a file, reads it back, and lists the directory that it is in.
 *
 *   cc files.c $(pkg-config --cflags --libs azekura) -o files
 *   ./files POOL [CONTAINER]
 */
#include <azekura.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The message says which call failed, on what, and what to do. */
static int failed(void)
{
	fprintf(stderr, "%s\n", azekura_error_message());
	return 1;
}

static int write_and_read(azekura_container *container)
{
	static const char text[] = "stored in the beams\n";
	char back[sizeof text];
	azekura_file *file;
	ssize_t got;
	int done = -1;

	if (azekura_mkdirs(container, "/notes/today", 0755) < 0)
		return -1;
	if (azekura_open(container, "/notes/today/first.txt", O_RDWR | O_CREAT | O_TRUNC, 0644,
			 &file) < 0)
		return -1;
	if (azekura_pwrite(file, text, strlen(text), 0) < 0 || azekura_fsync(file) < 0)
		goto out;
	got = azekura_pread(file, back, sizeof back - 1, 0);
	if (got < 0)
		goto out;
	back[got] = '\0';
	printf("%s", back);
	done = 0;
out:
	azekura_close(file);
	return done;
}

static int list(azekura_container *container)
{
	struct azekura_dirent entry;
	struct azekura_stat stat;
	azekura_dir *dir;
	int more;

	if (azekura_opendir(container, "/notes/today", &dir) < 0)
		return -1;
	while ((more = azekura_readdir(dir, &entry, &stat)) > 0)
		printf("%8" PRIu64 " %s\n", stat.size, entry.name);
	azekura_closedir(dir);
	return more;
}

int main(int argc, char **argv)
{
	azekura_pool *pool;
	azekura_container *container;

	if (argc < 2) {
		fprintf(stderr, "usage: %s POOL [CONTAINER]\n", argv[0]);
		return 2;
	}
	if (azekura_pool_open(argv[1], NULL, &pool) < 0)
		return failed();
	if (azekura_container_open(pool, argc > 2 ? argv[2] : "default", 0, &container) < 0)
		return failed();
	if (write_and_read(container) < 0 || list(container) < 0)
		return failed();
	azekura_container_close(container);
	azekura_pool_close(pool);
	return 0;
}
