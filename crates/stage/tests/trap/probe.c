/* Makes single calls and says what came of them, for the tests of the trap. Linked statically: no hook
 * could reach it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static int fail(const char *what)
{
	printf("%s: %s\n", what, strerrorname_np(errno));
	return 1;
}

static int copy_out(int fd)
{
	char buffer[65536];
	ssize_t got;
	while ((got = read(fd, buffer, sizeof buffer)) > 0)
		fwrite(buffer, 1, got, stdout);
	return got < 0 ? fail("read") : 0;
}

static int print_file(const char *path)
{
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return fail("open");
	int failed = copy_out(fd);
	close(fd);
	return failed;
}

static void print_stat(const char *how, const struct stat *st)
{
	printf("%s mode=%o nlink=%lu uid=%u gid=%u size=%ld blksize=%ld blocks=%ld mtime=%ld.%09ld\n", how,
	       st->st_mode, (unsigned long)st->st_nlink, st->st_uid, st->st_gid, (long)st->st_size,
	       (long)st->st_blksize, (long)st->st_blocks, (long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
}

/* All forms of stat, and whether an open file is the one that was looked at before. */
static int stats(const char *path)
{
	struct stat before, after;
	struct statx extended;
	if (stat(path, &before) < 0)
		return fail("stat");
	print_stat("stat", &before);
	if (lstat(path, &after) < 0)
		return fail("lstat");
	print_stat("lstat", &after);
	if (syscall(SYS_newfstatat, AT_FDCWD, path, &after, 0) < 0)
		return fail("newfstatat");
	print_stat("newfstatat", &after);
	if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) < 0)
		return fail("statx");
	printf("statx mode=%o nlink=%u size=%llu mtime=%lld.%09u\n", extended.stx_mode, extended.stx_nlink,
	       (unsigned long long)extended.stx_size, (long long)extended.stx_mtime.tv_sec,
	       extended.stx_mtime.tv_nsec);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return fail("open");
	fstat(fd, &after);
	printf("same %d\n", before.st_dev == after.st_dev && before.st_ino == after.st_ino);
	stat(path, &after);
	printf("same %d\n", before.st_dev == after.st_dev && before.st_ino == after.st_ino);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list(DIR *dir)
{
	char *names[1000];
	size_t count = 0;
	struct dirent *entry;
	while ((entry = readdir(dir)) && count < 1000)
		if (entry->d_name[0] != '.')
			names[count++] = strdup(entry->d_name);
	qsort(names, count, sizeof *names, by_name);
	for (size_t i = 0; i < count; i++)
		printf("%s ", names[i]);
	printf("\n");
	return 0;
}

/* Works below a directory's descriptor, and below one of that. */
static int relative(const char *dir, const char *below, const char *name)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fail("open directory");
	int lower = openat(fd, below, O_PATH | O_DIRECTORY);
	if (lower < 0)
		return fail("openat directory");
	struct stat st;
	if (fstatat(lower, name, &st, 0) < 0)
		return fail("fstatat");
	printf("size %ld\n", (long)st.st_size);
	int file = openat(lower, name, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return fail("openat");
	printf("cloexec %d\n", fcntl(file, F_GETFD) & FD_CLOEXEC);
	int failed = copy_out(file);
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d/%s/%s", fd, below, name);
	return failed || print_file(path) || list(fdopendir(fd));
}

static void *read_in_thread(void *path)
{
	struct timespec start, end;
	char first[65];
	clock_gettime(CLOCK_MONOTONIC, &start);
	int fd = open(path, O_RDONLY);
	ssize_t got = fd < 0 ? -1 : read(fd, first, sizeof first - 1);
	clock_gettime(CLOCK_MONOTONIC, &end);
	long ms = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
	if (got < 0)
		return strdup(strerrorname_np(errno));
	first[got] = 0;
	char *said;
	if (asprintf(&said, "%s %s", ms < 1000 ? "soon" : "late", first) < 0)
		abort();
	return said;
}

static int threads(int count, char **paths)
{
	pthread_t thread[64];
	for (int i = 0; i < count; i++)
		pthread_create(&thread[i], NULL, read_in_thread, paths[i]);
	for (int i = 0; i < count; i++) {
		void *said;
		pthread_join(thread[i], &said);
		printf("%s\n", (char *)said);
	}
	return 0;
}

/* A tree of processes, each of which reads the file. */
static int fork_tree(int depth, const char *path)
{
	int failed = print_file(path);
	fflush(stdout);
	for (int i = 0; i < 2 && depth > 0; i++) {
		pid_t pid = fork();
		if (pid == 0)
			exit(fork_tree(depth - 1, path));
		int status;
		waitpid(pid, &status, 0);
		failed |= status;
	}
	return failed != 0;
}

/* Runs a program as posix_spawn does, by a path that must stay as it was, twice. */
static int spawn(char **words)
{
	char *kept = strdup(words[0]);
	char *environment[] = {NULL};
	for (volatile int i = 0; i < 2; i++) {
		fflush(stdout);
		pid_t pid = vfork();
		if (pid == 0) {
			execve(words[0], words, environment);
			_exit(errno);
		}
		int status;
		waitpid(pid, &status, 0);
		if (WEXITSTATUS(status)) {
			errno = WEXITSTATUS(status);
			return fail("execve");
		}
	}
	printf("path kept %d\n", strcmp(kept, words[0]) == 0);
	return 0;
}

static void *exec_in_thread(void *words)
{
	execv(*(char **)words, words);
	fail("execv");
	exit(1);
}

/* Counts descriptors, so that those left over are seen. */
static int descriptors(void)
{
	int count = 0;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static int change_directory(const char *dir, const char *name)
{
	char cwd[4096];
	int before = descriptors();
	for (int i = 0; i < 3; i++)
		if (chdir(dir) < 0)
			return fail("chdir");
	printf("left over %d\n", descriptors() - before);
	if (!getcwd(cwd, sizeof cwd))
		return fail("getcwd");
	printf("cwd %s\n", cwd);
	return print_file(name) || list(opendir("."));
}

static int write_file(const char *path, int flags, const char *text)
{
	umask(027);
	int fd = open(path, flags, 0666);
	if (fd < 0)
		return fail("open");
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return fail("write");
	close(fd);
	return 0;
}

#define TRY(call)                                                                                             \
	printf("%s: %s\n", #call, (call) == 0 ? "0" : strerrorname_np(errno))

/* Changes of all kinds below a directory. */
static int changes(const char *dir)
{
	if (chdir(dir) < 0)
		return fail("chdir");
	struct stat st;
	struct timespec times[2] = {{1, 2}, {3, 4}};
	char text[100];
	umask(027);
	TRY(mkdir("d", 0777));
	TRY(mkdir("d", 0777));
	TRY(write_file("d/f", O_WRONLY | O_CREAT | O_EXCL, "text"));
	TRY(link("d/f", "d/g"));
	TRY(rename("d/f", "h"));
	TRY(rename("d/f", "h"));
	TRY(symlink("h", "s"));
	memset(text, 0, sizeof text);
	printf("%zd %s\n", readlink("s", text, sizeof text), text);
	TRY(chmod("h", 0604));
	TRY(truncate("h", 2));
	TRY(utimensat(AT_FDCWD, "h", times, 0));
	TRY(stat("h", &st));
	printf("%o %ld %ld.%ld\n", st.st_mode, (long)st.st_size, (long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	TRY(stat("d", &st));
	printf("%o\n", st.st_mode);
	TRY(mkfifo("p", 0666));
	TRY(access("h", R_OK | W_OK));
	TRY(rmdir("d"));
	TRY(unlink("d/g"));
	TRY(rmdir("d"));
	TRY(unlink("h"));
	TRY(stat("h", &st));
	TRY(stat("s", &st));
	return 0;
}

/* How long an open takes, and the close with it. */
static int time_opens(const char *path, int count)
{
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 0; i < count; i++) {
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			return fail("open");
		close(fd);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	double us = (end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3;
	printf("%.2f\n", us / count);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct statfs fs;
	char value[100];
	if (!strcmp(what, "read"))
		return print_file(argv[2]);
	if (!strcmp(what, "stats"))
		return stats(argv[2]);
	if (!strcmp(what, "access"))
		return access(argv[2], atoi(argv[3])) ? fail("access") : 0;
	if (!strcmp(what, "relative"))
		return relative(argv[2], argv[3], argv[4]);
	if (!strcmp(what, "list")) {
		DIR *dir = opendir(argv[2]);
		return dir ? list(dir) : fail("opendir");
	}
	if (!strcmp(what, "write"))
		return write_file(argv[2], O_WRONLY | atoi(argv[3]), argv[4]);
	if (!strcmp(what, "threads"))
		return threads(argc - 2, argv + 2);
	if (!strcmp(what, "forks"))
		return fork_tree(3, argv[2]);
	if (!strcmp(what, "spawn"))
		return spawn(argv + 2);
	if (!strcmp(what, "exec-in-thread")) {
		pthread_t thread;
		pthread_create(&thread, NULL, exec_in_thread, argv + 2);
		pthread_join(thread, NULL);
	}
	if (!strcmp(what, "cd"))
		return change_directory(argv[2], argv[3]);
	if (!strcmp(what, "changes"))
		return changes(argv[2]);
	if (!strcmp(what, "statfs"))
		return statfs(argv[2], &fs) ? fail("statfs") : 0;
	if (!strcmp(what, "xattr"))
		return getxattr(argv[2], "user.x", value, sizeof value) < 0 ? fail("getxattr") : 0;
	if (!strcmp(what, "time"))
		return time_opens(argv[2], atoi(argv[3]));
	if (!strcmp(what, "words")) {
		for (int i = 0; i < argc; i++)
			printf("%s ", argv[i]);
		printf("\n");
		return 0;
	}
	return 2;
}
