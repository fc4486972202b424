/* Lists directories in every way there is. */
#include "tell.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANY = 3000 };

static int by_text(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

/* What is in a stream from here on, sorted. */
static void show_rest(DIR *dir)
{
	char *names[64];
	size_t count = 0;
	struct dirent *entry;

	errno = 0;
	while ((entry = readdir(dir)) != NULL && count < 64) {
		char text[300];

		snprintf(text, sizeof text, "%s %d", entry->d_name, entry->d_type);
		names[count++] = strdup(text);
	}
	printf("%zu entries, then %s:", count, errno ? strerrorname_np(errno) : "the end");
	qsort(names, count, sizeof names[0], by_text);
	for (size_t i = 0; i < count; i++) {
		printf(" [%s]", names[i]);
		free(names[i]);
	}
	printf("\n");
}

static void streams(void)
{
	DIR *dir = opendir(at("d"));
	int fd;
	struct stat one, other;
	struct dirent *entry;

	T(dir != NULL);
	show_rest(dir);
	show_rest(dir);
	rewinddir(dir);
	show_rest(dir);
	T(dirfd(dir) >= 0);
	T(fstat(dirfd(dir), &one));
	T(stat(at("d"), &other));
	T(one.st_ino == other.st_ino);
	T(fcntl(dirfd(dir), F_GETFD));
	T(closedir(dir));
	errno = 0;
	T(opendir(at("none")) == NULL);
	printf("%s\n", strerrorname_np(errno));
	T(opendir(at("d/file")) == NULL);
	printf("%s\n", strerrorname_np(errno));
	fd = FD(open(at("d"), O_RDONLY));
	dir = fdopendir(fd);
	T(dir != NULL && dirfd(dir) == fd);
	show_rest(dir);
	T(closedir(dir));
	T(fcntl(fd, F_GETFD));
	fd = FD(open(at("d/file"), O_RDONLY));
	T(fdopendir(fd) == NULL);
	printf("%s\n", strerrorname_np(errno));
	T(close(fd));
	fd = FD(open(at("d"), O_PATH));
	dir = fdopendir(fd);
	T(dir != NULL && readdir(dir) == NULL);
	printf("%s\n", strerrorname_np(errno));
	T(closedir(dir));
	dir = opendir(at("d"));
	while ((entry = readdir(dir)) != NULL) {
		T(fstatat(dirfd(dir), entry->d_name, &one, AT_SYMLINK_NOFOLLOW) == 0 &&
		  (one.st_ino == entry->d_ino || strcmp(entry->d_name, "..") == 0));
	}
	T(closedir(dir));
}

static void many(void)
{
	static char seen[MANY];
	char name[32];
	DIR *dir;
	struct dirent *entry;
	long places[4] = { 0 };
	char after[4][256];
	int count = 0, marks = 0;

	T(mkdir(at("many"), 0755));
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof name, "many/name-%d", i);
		close(open(at(name), O_WRONLY | O_CREAT, 0644));
	}
	dir = opendir(at("many"));
	while ((entry = readdir(dir)) != NULL) {
		int i;

		count++;
		if (sscanf(entry->d_name, "name-%d", &i) == 1)
			seen[i]++;
		if (count % 700 == 0 && marks < 4) {
			places[marks] = telldir(dir);
			entry = readdir(dir);
			count++;
			if (sscanf(entry->d_name, "name-%d", &i) == 1)
				seen[i]++;
			snprintf(after[marks++], sizeof after[0], "%s", entry->d_name);
		}
	}
	for (int i = 0; i < MANY; i++)
		if (seen[i] != 1)
			printf("name-%d was listed %d times\n", i, seen[i]);
	printf("%d entries\n", count);
	for (int i = marks - 1; i >= 0; i--) {
		seekdir(dir, places[i]);
		entry = readdir(dir);
		T(entry != NULL && strcmp(entry->d_name, after[i]) == 0);
		T(telldir(dir) != places[i]);
	}
	/* What is removed while it is listed. */
	rewinddir(dir);
	count = 0;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' && unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			count++;
	printf("%d removed\n", count);
	T(closedir(dir));
	T(rmdir(at("many")));
}

static void raw(void)
{
	char buffer[4096];
	int fd = FD(open(at("d"), O_RDONLY | O_DIRECTORY));
	int count = 0;
	ssize_t got;

	while ((got = getdents64(fd, buffer, sizeof buffer)) > 0)
		for (char *next = buffer; next < buffer + got;) {
			struct dirent64 *entry = (struct dirent64 *)(void *)next;

			count++;
			next += entry->d_reclen;
		}
	printf("%d entries, then %zd\n", count, got);
	T(lseek(fd, 0, SEEK_SET));
	T(getdents64(fd, buffer, 8));
	T(getdents64(fd, buffer, sizeof buffer) > 0);
	T(close(fd));
	fd = FD(open(at("d/file"), O_RDONLY));
	T(getdents64(fd, buffer, sizeof buffer));
	T(close(fd));
}

static int not_hidden(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void scans(void)
{
	struct dirent **list;
	int count = scandir(at("d"), &list, not_hidden, alphasort);
	int dir;

	for (int i = 0; i < count; i++) {
		printf("  %s\n", list[i]->d_name);
		free(list[i]);
	}
	free(list);
	T(scandir(at("none"), &list, NULL, NULL));
	T(scandir(at("d/file"), &list, NULL, NULL));
	dir = FD(open(at(""), O_RDONLY));
	count = scandirat(dir, "d", &list, NULL, alphasort);
	printf("%d %s\n", count, list[2]->d_name);
	for (int i = 0; i < count; i++)
		free(list[i]);
	free(list);
	T(close(dir));
}

static char told[64][256];
static int tellings;

static int on_entry(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	(void)st;
	snprintf(told[tellings++], sizeof told[0], "%s kind %d level %d name %s", tail(path), kind,
		 place->level, path + place->base);
	return 0;
}

static int stop_early(const char *path, const struct stat *st, int kind)
{
	(void)path;
	(void)st;
	(void)kind;
	return ++tellings == 3 ? 77 : 0;
}

static int by_line(const void *one, const void *other)
{
	return strcmp(one, other);
}

static void walk(int flags)
{
	int result;

	tellings = 0;
	result = nftw(at("tree"), on_entry, 8, flags);
	printf("nftw with flags %d: %d, in %d steps\n", flags, result, tellings);
	if (flags & FTW_DEPTH)
		printf("  last: %s\n", told[tellings - 1]);
	else
		printf("  first: %s\n", told[0]);
	qsort(told, (size_t)tellings, sizeof told[0], by_line);
	for (int i = 0; i < tellings; i++)
		printf("  %s\n", told[i]);
}

static void trees(void)
{
	T(mkdir(at("tree"), 0755));
	T(mkdir(at("tree/a"), 0755));
	T(mkdir(at("tree/a/b"), 0755));
	T(mkdir(at("tree/c"), 0755));
	close(open(at("tree/a/file"), O_CREAT | O_WRONLY, 0644));
	close(open(at("tree/a/b/deep"), O_CREAT | O_WRONLY, 0644));
	T(symlink("a/file", at("tree/link")));
	T(symlink("none", at("tree/dangling")));
	walk(0);
	walk(FTW_PHYS);
	walk(FTW_PHYS | FTW_DEPTH);
	walk(FTW_PHYS | FTW_CHDIR);
	tellings = 0;
	T(ftw(at("tree"), stop_early, 8));
	T(nftw(at("none"), on_entry, 8, FTW_PHYS));
}

static void globs(const char *pattern, int flags)
{
	glob_t found;
	int result = glob(pattern, flags, NULL, &found);

	printf("glob %s: %d\n", tail(pattern), result);
	if (result != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		printf("  %s\n", tail(found.gl_pathv[i]));
	globfree(&found);
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	base_path = arguments[1];
	T(mkdir(at("d"), 0755));
	T(mkdir(at("d/sub"), 0755));
	close(open(at("d/file"), O_CREAT | O_WRONLY, 0644));
	close(open(at("d/other"), O_CREAT | O_WRONLY, 0644));
	T(symlink("file", at("d/symlink")));
	T(mkfifo(at("d/pipe"), 0600));
	streams();
	raw();
	scans();
	trees();
	globs(at("d/*"), GLOB_MARK);
	globs(at("*/f*e"), 0);
	globs(at("d/none*"), 0);
	globs(at("d/{sub,other,none}"), GLOB_BRACE);
	globs(at("d/file"), 0);
	globs(at("d/.*"), 0);
	T(chdir(at("tree")));
	globs("*/*", GLOB_MARK);
	many();
	return 0;
}
