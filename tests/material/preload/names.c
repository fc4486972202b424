/* Makes, finds, moves and removes names in every way there is. */
#include "tell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char *volatile nowhere;

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		printf("cannot write %s\n", tail(path));
	close(fd);
}

static void show(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		printf("  %s: %s\n", tail(path), strerrorname_np(errno));
	else
		printf("  %s: mode %o links %ld size %ld\n", tail(path), st.st_mode,
		       (long)st.st_nlink, S_ISDIR(st.st_mode) ? 0 : (long)st.st_size);
}

static void accesses(void)
{
	put(at("a"), "text");
	T(chmod(at("a"), 0640));
	T(access(at("a"), F_OK));
	T(access(at("a"), R_OK | W_OK));
	T(access(at("a"), X_OK));
	T(access(at("none"), F_OK));
	T(access(at("a/b"), F_OK));
	T(access(at("a"), 8));
	T(access("", F_OK));
	T(access(nowhere, F_OK));
	T(eaccess(at("a"), R_OK));
	T(euidaccess(at("none"), R_OK));
	T(faccessat(AT_FDCWD, at("a"), R_OK, AT_EACCESS));
	T(symlink("none", at("dangling")));
	T(faccessat(AT_FDCWD, at("dangling"), F_OK, 0));
	T(faccessat(AT_FDCWD, at("dangling"), F_OK, AT_SYMLINK_NOFOLLOW));
}

static void directories(void)
{
	int dir;

	T(mkdir(at("d"), 0755));
	T(mkdir(at("d"), 0755));
	T(mkdir(at("d/e/"), 0700));
	T(mkdir(at("none/e"), 0700));
	T(mkdir(at("a/e"), 0700));
	T(mkdir(at("d/."), 0700));
	T(mkdir(nowhere, 0700));
	show(at("d/e"));
	dir = FD(open(at("d"), O_RDONLY | O_DIRECTORY));
	T(mkdirat(dir, "f", 02777));
	show(at("d/f"));
	T(mkdirat(dir, at("g"), 0750));
	show(at("g"));
	T(mkdirat(-1, "f", 0777));
	T(rmdir(at("d")));
	T(rmdir(at("a")));
	T(rmdir(at("d/e/.")));
	T(rmdir(at("d/e/..")));
	T(rmdir(at("d/e")));
	T(unlinkat(dir, "f", 0));
	T(unlinkat(dir, "f", AT_REMOVEDIR));
	T(unlinkat(dir, "f", AT_REMOVEDIR));
	T(unlinkat(dir, "f", 0x40000));
	T(remove(at("g")));
	T(remove(at("g")));
	T(unlink(at("d")));
	T(unlink(at("d/")));
	T(unlink(at("a/")));
	T(close(dir));
	T(remove(at("dangling")));
	T(unlink(at("dangling")));
}

static void renames(void)
{
	int dir = FD(open(at("d"), O_PATH | O_DIRECTORY));

	put(at("r1"), "one");
	put(at("r2"), "second");
	T(rename(at("r1"), at("r3")));
	T(rename(at("r1"), at("r4")));
	T(rename(at("r3"), at("r2")));
	show(at("r2"));
	T(rename(at("r2"), at("d")));
	T(rename(at("d"), at("r2")));
	T(rename(at("d"), at("d/below")));
	T(rename(at("r2"), at("none/r")));
	T(rename(at("r2"), at("r2")));
	T(rename(at("r2"), at("r5/")));
	T(rename(at("d/."), at("x")));
	T(renameat(AT_FDCWD, at("r2"), dir, "r6"));
	show(at("d/r6"));
	put(at("r7"), "seven!!");
	T(renameat2(dir, "r6", AT_FDCWD, at("r7"), RENAME_NOREPLACE));
	T(renameat2(dir, "r6", AT_FDCWD, at("r7"), RENAME_EXCHANGE));
	T(renameat2(dir, "r6", AT_FDCWD, at("none"), RENAME_EXCHANGE));
	T(renameat2(dir, "r6", AT_FDCWD, at("r7"), 64));
	show(at("d/r6"));
	show(at("r7"));
	T(rename(nowhere, at("x")));
	T(rename(at("r7"), nowhere));
	T(mkdir(at("d2"), 0755));
	T(rename(at("d2"), at("d")));
	T(unlink(at("d/r6")));
	T(rename(at("d2/"), at("d/")));
	T(close(dir));
}

static void links(void)
{
	char name[64], buffer[64];
	ssize_t got;
	int fd, dir;

	put(at("l"), "linked");
	T(link(at("l"), at("l2")));
	T(link(at("l"), at("l2")));
	show(at("l"));
	T(link(at("d"), at("d3")));
	T(link(at("none"), at("l3")));
	T(symlink("l", at("s")));
	T(link(at("s"), at("s2")));
	show(at("s2"));
	T(linkat(AT_FDCWD, at("s"), AT_FDCWD, at("l3"), AT_SYMLINK_FOLLOW));
	show(at("l3"));
	T(linkat(AT_FDCWD, at("l"), AT_FDCWD, at("l4"), 1));
	fd = FD(open(at("d"), O_TMPFILE | O_RDWR, 0640));
	T(write(fd, "nameless", 8));
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	T(linkat(AT_FDCWD, name, AT_FDCWD, at("named"), AT_SYMLINK_FOLLOW));
	T(close(fd));
	show(at("named"));
	T(unlink(at("named")));
	fd = FD(open(at("l"), O_RDONLY));
	T(linkat(fd, "", AT_FDCWD, at("l5"), AT_EMPTY_PATH));
	show(at("l5"));
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	got = readlink(name, buffer, 1);
	printf("readlink of a descriptor: %zd\n", got);
	P(realpath(name, NULL));
	T(close(fd));
	T(symlink("", at("s3")));
	T(symlink("x", at("s")));
	T(symlink(nowhere, at("s3")));
	memset(buffer, '#', sizeof buffer);
	T(readlink(at("s"), buffer, sizeof buffer));
	printf("%.3s\n", buffer);
	T(symlink("a/longer/text", at("s4")));
	T(readlink(at("s4"), buffer, 5));
	printf("%.6s\n", buffer);
	T(readlink(at("s4"), buffer, 0));
	T(readlink(at("l"), buffer, sizeof buffer));
	T(readlink(at("none"), buffer, sizeof buffer));
	dir = FD(open(at(""), O_RDONLY));
	T(symlinkat("../x", dir, "s5"));
	T(readlinkat(dir, "s5", buffer, sizeof buffer));
	T(symlink("loop", at("loop")));
	T(open(at("loop"), O_RDONLY));
	T(access(at("loop/x"), F_OK));
	T(close(dir));
}

static void nodes(void)
{
	T(mknod(at("n1"), S_IFREG | 0666, 0));
	show(at("n1"));
	T(mknod(at("n1"), 0600, 0));
	T(mknod(at("n2"), S_IFIFO | 0600, 0));
	T(mkfifo(at("n3"), 0666));
	T(mkfifoat(AT_FDCWD, at("n3"), 0666));
	T(mknod(at("n4"), S_IFSOCK | 0600, 0));
	T(mknod(at("n5"), S_IFDIR | 0600, 0));
	T(mknodat(AT_FDCWD, at("n6"), S_IFLNK | 0600, 0));
	show(at("n2"));
	show(at("n3"));
	show(at("n4"));
	umask(027);
	T(mknod(at("n7"), S_IFREG | 0666, 0));
	show(at("n7"));
	printf("umask %o\n", umask(022));
}

static void temporaries(void)
{
	char name[4200];
	int fd;

	snprintf(name, sizeof name, "%s/t-XXXXXX", base_path);
	fd = FD(mkstemp(name));
	printf("%zu %d\n", strlen(tail(name)), strcmp(tail(name), "/t-XXXXXX") != 0);
	T(write(fd, "x", 1));
	T(close(fd));
	show(at("t-XXXXXX"));
	T(unlink(name));
	snprintf(name, sizeof name, "%s/t-XXXXXX.end", base_path);
	fd = FD(mkostemps(name, 4, O_APPEND | O_CLOEXEC));
	T(fcntl(fd, F_GETFD));
	T((fcntl(fd, F_GETFL) & O_APPEND) != 0);
	T(close(fd));
	T(unlink(name));
	snprintf(name, sizeof name, "%s/t-XXXXX", base_path);
	T(mkstemp(name));
	snprintf(name, sizeof name, "%s/none/t-XXXXXX", base_path);
	T(mkstemp(name));
	T(mkostemp(name, 0));
	snprintf(name, sizeof name, "%s/t-XXXXXX", base_path);
	T(mkdtemp(name) == name);
	T(rmdir(name));
	snprintf(name, sizeof name, "%s/t-XXXXXXab", base_path);
	fd = FD(mkstemps(name, 2));
	T(close(fd));
	T(unlink(name));
}

static void lengths(void)
{
	put(at("long"), "0123456789");
	T(truncate(at("long"), 4));
	show(at("long"));
	T(truncate(at("long"), 100000));
	show(at("long"));
	T(truncate(at("long"), -1));
	T(truncate(at("none"), 1));
	T(truncate(at("d"), 1));
	T(truncate(at("long/x"), 1));
	T(truncate(nowhere, 1));
}

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	base_path = arguments[1];
	umask(022);
	accesses();
	directories();
	renames();
	links();
	nodes();
	temporaries();
	lengths();
	return 0;
}
