/* Changes and shows attributes in every way there is. */
#include "tell.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

static void show(const char *path)
{
	struct stat st;

	if (lstat(path, &st) != 0)
		printf("  %s: %s\n", tail(path), strerrorname_np(errno));
	else
		printf("  %s: mode %o owner %u:%u\n", tail(path), st.st_mode, st.st_uid, st.st_gid);
}

static void show_times(const char *path)
{
	struct stat st;
	time_t now = time(NULL);

	if (lstat(path, &st) != 0) {
		printf("  %s: %s\n", tail(path), strerrorname_np(errno));
		return;
	}
	if (st.st_atime > now - 1000)
		printf("  accessed now, ");
	else
		printf("  accessed %ld.%09ld, ", (long)st.st_atim.tv_sec, (long)st.st_atim.tv_nsec);
	if (st.st_mtime > now - 1000)
		printf("changed now\n");
	else
		printf("changed %ld.%09ld\n", (long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
}

static void modes(int fd, int place)
{
	T(chmod(at("f"), 0600));
	show(at("f"));
	T(chmod(at("f"), 06755));
	show(at("f"));
	T(chmod(at("none"), 0600));
	T(chmod(at("f/x"), 0600));
	T(fchmod(fd, 0644));
	show(at("f"));
	T(fchmod(place, 0600));
	T(fchmod(-1, 0600));
	T(chmod(at("s"), 0611));
	show(at("f"));
	T(fchmodat(AT_FDCWD, at("f"), 0640, AT_SYMLINK_NOFOLLOW));
	T(fchmodat(AT_FDCWD, at("s"), 0640, AT_SYMLINK_NOFOLLOW));
	T(lchmod(at("s"), 0640));
	T(fchmodat(AT_FDCWD, at("f"), 0640, 0x4000));
	show(at("f"));
	T(chmod(at("d"), 03711));
	show(at("d"));
}

static void owners(int fd, int place)
{
	uid_t me = geteuid();
	gid_t group = getegid();

	T(chown(at("f"), me, group));
	T(chown(at("f"), (uid_t)-1, (gid_t)-1));
	T(chown(at("none"), me, group));
	T(lchown(at("s"), me, group));
	T(fchown(fd, me, (gid_t)-1));
	T(fchown(place, me, group));
	T(fchownat(place, "", me, group, AT_EMPTY_PATH));
	T(fchownat(AT_FDCWD, at("s"), me, group, AT_SYMLINK_NOFOLLOW));
	T(fchownat(AT_FDCWD, at("s"), me, group, 0x8000));
	if (me == 0) {
		T(chmod(at("f"), 06755));
		T(chown(at("f"), 12, 34));
		show(at("f"));
		T(lchown(at("s"), 56, 78));
		show(at("s"));
		T(fchown(fd, 1, 2));
		show(at("f"));
	}
}

static void times(int fd)
{
	struct timespec both[2] = { { 1000, 1 }, { 2000, 999999999 } };
	struct timeval older[2] = { { 3000, 5 }, { 4000, 999999 } };
	struct utimbuf oldest = { 5000, 6000 };

	T(utimensat(AT_FDCWD, at("f"), both, 0));
	show_times(at("f"));
	T(utimensat(AT_FDCWD, at("s"), both, AT_SYMLINK_NOFOLLOW));
	show_times(at("s"));
	T(utimes(at("f"), older));
	show_times(at("f"));
	T(lutimes(at("s"), older));
	show_times(at("s"));
	T(futimes(fd, older));
	T(futimesat(AT_FDCWD, at("d"), older));
	show_times(at("d"));
	T(utime(at("f"), &oldest));
	show_times(at("f"));
	both[0].tv_nsec = UTIME_OMIT;
	T(futimens(fd, both));
	show_times(at("f"));
	both[1].tv_nsec = UTIME_NOW;
	T(futimens(fd, both));
	show_times(at("f"));
	T(utimes(at("f"), NULL));
	show_times(at("f"));
	both[1].tv_nsec = 1000000000;
	T(utimensat(AT_FDCWD, at("f"), both, 0));
	older[1].tv_usec = 1000000;
	T(utimes(at("f"), older));
	T(utime(at("none"), NULL));
	T(utimensat(AT_FDCWD, at("f"), NULL, 0x4000));
	T(futimens(-1, NULL));
}

static int by_text(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

static void show_names(char *names, ssize_t bytes)
{
	char *found[16];
	size_t count = 0;

	/* Others may have put names there: only those of this program count, in any order. */
	for (char *name = names; name < names + bytes; name += strlen(name) + 1)
		if (strncmp(name, "user.", 5) == 0 && count < 16)
			found[count++] = name;
	qsort(found, count, sizeof found[0], by_text);
	for (size_t i = 0; i < count; i++)
		printf("  %s\n", found[i]);
}

static void extended(int fd)
{
	char value[64], names[4096];
	ssize_t got;

	T(setxattr(at("x"), "user.one", "first", 5, 0));
	T(setxattr(at("x"), "user.one", "again", 5, XATTR_CREATE));
	T(setxattr(at("x"), "user.two", "", 0, XATTR_REPLACE));
	T(setxattr(at("x"), "user.two", "2", 1, XATTR_CREATE));
	T(setxattr(at("x"), "user.one", "changed", 7, XATTR_REPLACE));
	T(getxattr(at("x"), "user.one", NULL, 0));
	T(getxattr(at("x"), "user.one", value, sizeof value));
	printf("%.7s\n", value);
	T(getxattr(at("x"), "user.one", value, 3));
	T(getxattr(at("x"), "user.none", value, 3));
	T(getxattr(at("none"), "user.one", value, 3));
	T(setxattr(at("x"), "nonsense", "1", 1, 0));
	T(setxattr(at("x"), "user.three", "1", 1, 8));
	T(getxattr(at("xs"), "user.two", value, sizeof value));
	T(lgetxattr(at("xs"), "user.two", value, sizeof value));
	T(lsetxattr(at("xs"), "user.two", "3", 1, 0));
	T(fsetxattr(fd, "user.three", "three", 5, 0));
	T(fgetxattr(fd, "user.three", value, sizeof value));
	got = listxattr(at("x"), names, sizeof names);
	show_names(names, got);
	T(listxattr(at("x"), names, 1));
	got = flistxattr(fd, names, sizeof names);
	show_names(names, got);
	T(llistxattr(at("xs"), names, sizeof names) >= 0);
	T(removexattr(at("x"), "user.one"));
	T(removexattr(at("x"), "user.one"));
	T(fremovexattr(fd, "user.three"));
	T(lremovexattr(at("xs"), "user.three"));
	got = listxattr(at("x"), names, sizeof names);
	show_names(names, got);
}

static void space(int fd)
{
	struct statfs fs;
	struct statvfs vfs;

	T(statfs(at("f"), &fs));
	T(fs.f_bsize > 0 && fs.f_blocks >= fs.f_bfree && fs.f_namelen >= 255);
	T(statfs(at("none"), &fs));
	T(fstatfs(fd, &fs));
	T(fstatfs(-1, &fs));
	T(statvfs(at("f"), &vfs));
	T(vfs.f_frsize > 0 && vfs.f_blocks >= vfs.f_bfree && vfs.f_namemax >= 255);
	T(fstatvfs(fd, &vfs));
	T(statvfs(at("none"), &vfs));
	T(pathconf(at("f"), _PC_NAME_MAX));
	T(pathconf(at("none"), _PC_NAME_MAX));
	T(fpathconf(fd, _PC_PATH_MAX));
	T(fpathconf(fd, _PC_PIPE_BUF));
	T(pathconf(at("f"), 12345));
}

static void users(void)
{
	if (geteuid() != 0) {
		for (int i = 0; i < 11; i++)
			printf("no root\n");
		return;
	}
	T(chmod(at(""), 0755));
	T(mkdir(at("root-only"), 0700));
	T(chmod(at("f"), 0600));
	T(chown(at("f"), 0, 0));
	T(setegid(1234));
	T(seteuid(1234));
	T(open(at("f"), O_RDONLY));
	T(mkdir(at("root-only/x"), 0700));
	T(access(at("f"), R_OK));
	T(eaccess(at("f"), R_OK));
	T(chmod(at("f"), 0666));
	T(chown(at("f"), 1234, 1234));
	T(utimes(at("f"), NULL));
	T(unlink(at("f")));
	T(seteuid(0));
	T(setegid(0));
	T(mkdir(at("root-only/x"), 0700));
}

int main(int count, char **arguments)
{
	int fd, place, other;

	if (count < 2)
		return 2;
	base_path = arguments[1];
	umask(022);
	fd = FD(open(at("f"), O_RDWR | O_CREAT, 0666));
	T(symlink("f", at("s")));
	T(mkdir(at("d"), 0755));
	place = FD(open(at("f"), O_PATH));
	other = FD(open(at("x"), O_RDWR | O_CREAT, 0666));
	T(symlink("x", at("xs")));
	modes(fd, place);
	owners(fd, place);
	times(fd);
	extended(other);
	space(fd);
	users();
	return 0;
}
