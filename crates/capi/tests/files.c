/* Files, directories, attributes and locks, through every function. Runs as any user. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static azekura_file *make(azekura_container *container, const char *path, int flags)
{
	azekura_file *file;

	OK(azekura_open(container, path, flags | O_CREAT, 0644, &file));
	return file;
}

static void data(azekura_container *container)
{
	enum { BYTES = 3 << 20 };
	static char out[BYTES], in[BYTES + 10];
	char a[4] = "", b[8] = "";
	struct iovec pieces[2] = { { a, 4 }, { b, 8 } };
	struct azekura_stat stat;
	azekura_file *file, *copy;
	size_t at;

	for (at = 0; at < BYTES; at++)
		out[at] = (char)(at * 31 + at / 1000);
	file = make(container, "/data", O_RDWR);
	IS(azekura_pwrite(file, out, BYTES, 100), BYTES);
	IS(azekura_pread(file, in, sizeof in, 100), BYTES);
	HOLDS(memcmp(in, out, BYTES) == 0);
	IS(azekura_pread(file, in, 10, BYTES + 100), 0);
	IS(azekura_pwrite(file, NULL, 0, 0), 0);
	OK(azekura_fstat(file, &stat));
	HOLDS(stat.size == BYTES + 100 && S_ISREG(stat.mode) && (stat.mode & 0777) == 0644);
	HOLDS(stat.nlink == 1 && stat.uid == geteuid() && stat.ino == stat.oid.lo);
	IS(azekura_seek_hole(file, 200), BYTES + 100);
	IS(azekura_seek_data(file, BYTES + 100), -ENXIO);
	IS(azekura_append(file, "tail", 4), BYTES + 100);
	memcpy(a, "abcd", 4);
	memcpy(b, "efghijkl", 8);
	IS(azekura_pwritev(file, pieces, 2, 50), 12);
	memset(a, 0, 4);
	memset(b, 0, 8);
	IS(azekura_preadv(file, pieces, 2, 50), 12);
	HOLDS(memcmp(a, "abcd", 4) == 0 && memcmp(b, "efghijkl", 8) == 0);
	IS(azekura_preadv(file, pieces, 2, BYTES + 100), 4);
	HOLDS(memcmp(a, "tail", 4) == 0);
	FAILS(azekura_preadv(file, NULL, 1, 0), EFAULT, "'pieces'");
	FAILS(azekura_preadv(file, pieces, -1, 0), EINVAL, "-1 pieces");
	OK(azekura_fsync(file));
	OK(azekura_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192));
	IS(azekura_pread(file, in, 1, 50), 1);
	HOLDS(in[0] == 0);
	FAILS(azekura_fallocate(file, 0x40, 0, 1), EOPNOTSUPP, "0x40");
	copy = make(container, "/copy", O_RDWR);
	IS(azekura_copy_range(file, 100000, copy, 0, 50000), 50000);
	IS(azekura_pread(copy, in, 50010, 0), 50000);
	HOLDS(memcmp(in, out + 100000 - 100, 50000) == 0);
	OK(azekura_close(copy));
	OK(azekura_ftruncate(file, 10));
	OK(azekura_close(file));
	OK(azekura_truncate(container, "/data", 5));
	OK(azekura_open(container, "data", O_RDONLY, 0, &file));
	FAILS(azekura_pwrite(file, "x", 1, 0), EBADF, "not open for this");
	IS(azekura_pread(file, in, 10, 0), 5);
	FAILS(azekura_pread(file, NULL, 10, 0), EFAULT, "'buffer'");
	OK(azekura_close(file));
	file = make(container, "/log", O_WRONLY | O_APPEND);
	IS(azekura_pwrite(file, "12", 2, 1000), 2);
	IS(azekura_pwritev(file, pieces, 2, 0), 12);
	OK(azekura_fstat(file, &stat));
	IS(stat.size, 14);
	OK(azekura_close(file));
}

static void opening(azekura_container *container)
{
	azekura_file *file = (azekura_file *)container;
	char text[64];

	FAILS(azekura_open(container, "/absent", O_RDONLY, 0, &file), ENOENT,
	      "azekura_open: '/absent': No such file");
	HOLDS(file == NULL);
	FAILS(azekura_open(container, "/data", O_RDWR | O_CREAT | O_EXCL, 0600, &file), EEXIST,
	      "'/data'");
	FAILS(azekura_open(container, "/data/x", O_RDONLY, 0, &file), ENOTDIR, "/data/x");
	FAILS(azekura_open(container, "/", O_RDWR, 0, &file), EISDIR, "'/'");
	FAILS(azekura_open(container, "/data", O_PATH, 0, &file), EINVAL, "open flags");
	FAILS(azekura_open(container, "/data", O_RDWR | O_WRONLY, 0, &file), EINVAL, "O_RDWR");
	FAILS(azekura_open(container, "", O_RDONLY, 0, &file), ENOENT, "''");
	FAILS(azekura_open(container, NULL, O_RDONLY, 0, &file), EFAULT, "'path'");
	FAILS(azekura_open(NULL, "/data", O_RDONLY, 0, &file), EINVAL, "container handle");
	FAILS(azekura_open(container, "/data", O_RDONLY, 0, NULL), EFAULT, "'file'");
	/* A file without a name, and its first name. */
	OK(azekura_open(container, "/", O_TMPFILE | O_RDWR, 0600, &file));
	IS(azekura_pwrite(file, "kept", 4, 0), 4);
	OK(azekura_flink(file, "/named"));
	OK(azekura_close(file));
	OK(azekura_open(container, "/named", O_RDWR, 0, &file));
	OK(azekura_unlink(container, "/named"));
	IS(azekura_pread(file, text, sizeof text, 0), 4);
	OK(azekura_close(file));
	/* A directory can be opened to be synced. */
	OK(azekura_open(container, "/", O_RDONLY | O_DIRECTORY, 0, &file));
	OK(azekura_fsync(file));
	FAILS(azekura_pread(file, text, 1, 0), EISDIR, "file");
	OK(azekura_close(file));
	OK(azekura_close(NULL));
}

static void names(azekura_container *container)
{
	char text[16];
	struct azekura_stat stat;

	OK(azekura_mkdir(container, "/d", 0755));
	FAILS(azekura_mkdir(container, "/d", 0755), EEXIST, "'/d'");
	OK(azekura_mkdirs(container, "/d/e/f", 0700));
	OK(azekura_mkdirs(container, "/d/e/f", 0700));
	FAILS(azekura_rmdir(container, "/d/e"), ENOTEMPTY, "'/d/e'");
	OK(azekura_close(make(container, "/d/one", O_RDWR)));
	OK(azekura_close(make(container, "/d/two", O_RDWR)));
	FAILS(azekura_rename(container, "/d/one", "/d/two", AZEKURA_RENAME_NOREPLACE), EEXIST,
	      "'/d/one' and '/d/two'");
	FAILS(azekura_rename(container, "/d/one", "/d/two", 4), EINVAL, "flags");
	OK(azekura_rename(container, "/d/one", "/d/two", AZEKURA_RENAME_EXCHANGE));
	OK(azekura_rename(container, "/d/one", "/d/two", 0));
	FAILS(azekura_unlink(container, "/d/one"), ENOENT, "'/d/one'");
	FAILS(azekura_unlink(container, "/d/e"), EISDIR, "'/d/e'");
	OK(azekura_link(container, "/d/two", "/d/three"));
	OK(azekura_stat(container, "/d/three", &stat));
	IS(stat.nlink, 2);
	OK(azekura_symlink(container, "two", "/d/four"));
	OK(azekura_lstat(container, "/d/four", &stat));
	HOLDS(S_ISLNK(stat.mode) && stat.size == 3);
	OK(azekura_stat(container, "/d/four", &stat));
	HOLDS(S_ISREG(stat.mode));
	IS(azekura_readlink(container, "/d/four", NULL, 0), 3);
	IS(azekura_readlink(container, "/d/four", text, sizeof text), 3);
	HOLDS(strcmp(text, "two") == 0);
	FAILS(azekura_readlink(container, "/d/four", text, 2), ERANGE, "3 bytes");
	FAILS(azekura_readlink(container, "/d/two", text, 2), EINVAL, "not a symlink");
	OK(azekura_mknod(container, "/d/pipe", S_IFIFO | 0600, 0));
	OK(azekura_stat(container, "/d/pipe", &stat));
	HOLDS(S_ISFIFO(stat.mode));
	FAILS(azekura_mknod(container, "/d/x", S_IFDIR | 0600, 0), EINVAL, "azekura_mkdir");
	OK(azekura_remove_tree(container, "/d"));
	IS(azekura_stat(container, "/d", &stat), -ENOENT);
}

static void attributes(azekura_container *container)
{
	struct timespec times[2] = { { 1000, 5 }, { 2000, 6 } };
	struct azekura_statfs space;
	struct azekura_stat stat;
	azekura_file *file = make(container, "/attributes", O_RDWR);

	OK(azekura_chmod(container, "/attributes", 0640));
	OK(azekura_fchmod(file, 0600));
	OK(azekura_chown(container, "/attributes", (uid_t)-1, (gid_t)-1));
	OK(azekura_lchown(container, "/attributes", geteuid(), getegid()));
	OK(azekura_fchown(file, geteuid(), getegid()));
	OK(azekura_utimens(container, "/attributes", times));
	OK(azekura_stat(container, "/attributes", &stat));
	HOLDS((stat.mode & 07777) == 0600 && stat.uid == geteuid() && stat.gid == getegid());
	HOLDS(stat.atime.tv_sec == 1000 && stat.atime.tv_nsec == 5);
	HOLDS(stat.mtime.tv_sec == 2000 && stat.mtime.tv_nsec == 6);
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_sec = 3000;
	OK(azekura_lutimens(container, "/attributes", times));
	OK(azekura_fstat(file, &stat));
	HOLDS(stat.atime.tv_sec == 1000 && stat.mtime.tv_sec == 3000);
	OK(azekura_futimens(file, NULL));
	OK(azekura_fstat(file, &stat));
	HOLDS(stat.mtime.tv_sec > 3000);
	times[0].tv_nsec = -7;
	FAILS(azekura_futimens(file, times), EINVAL, "-7");
	OK(azekura_access(container, "/attributes", R_OK | W_OK));
	OK(azekura_access(container, "/attributes", F_OK));
	FAILS(azekura_access(container, "/attributes", X_OK), EACCES, "'/attributes'");
	FAILS(azekura_access(container, "/attributes", 64), EINVAL, "F_OK");
	OK(azekura_statfs(container, &space));
	HOLDS(space.name_bytes_max == 255 && space.available_bytes <= space.total_bytes);
	OK(azekura_close(file));
}

static void other_users(azekura_pool *pool)
{
	gid_t groups[2] = { 500, 600 };
	azekura_container *container, *stranger;
	azekura_file *file;

	OK(azekura_container_open_as(pool, "default", 0, 4321, 4322, groups, 2, &stranger));
	OK(azekura_container_open(pool, "default", 0, &container));
	OK(azekura_close(make(container, "/mine", O_RDWR)));
	OK(azekura_chmod(container, "/mine", 0600));
	FAILS(azekura_open(stranger, "/mine", O_RDONLY, 0, &file), EACCES, "Permission denied");
	FAILS(azekura_chmod(stranger, "/mine", 0666), EPERM, "'/mine'");
	OK(azekura_container_close(stranger));
	OK(azekura_container_open_as(pool, "default", AZEKURA_NO_PERMISSION_CHECKS, 4321, 4322, NULL,
				     0, &stranger));
	OK(azekura_open(stranger, "/mine", O_RDONLY, 0, &file));
	OK(azekura_close(file));
	OK(azekura_container_close(stranger));
	OK(azekura_container_close(container));
}

static void xattrs(azekura_container *container)
{
	char room[64];
	struct azekura_stat stat;
	azekura_file *file = make(container, "/xattrs", O_RDWR);

	OK(azekura_setxattr(container, "/xattrs", "user.one", "1", 1, XATTR_CREATE));
	FAILS(azekura_setxattr(container, "/xattrs", "user.one", "1", 1, XATTR_CREATE), EEXIST,
	      "'/xattrs'");
	OK(azekura_fsetxattr(file, "user.two", "22", 2, 0));
	FAILS(azekura_fsetxattr(file, "user.two", "22", 2, 9), EINVAL, "XATTR_REPLACE");
	IS(azekura_getxattr(container, "/xattrs", "user.two", room, sizeof room), 2);
	IS(azekura_fgetxattr(file, "user.one", room, sizeof room), 1);
	FAILS(azekura_fgetxattr(file, "user.two", room, 1), ERANGE, "2 bytes");
	IS(azekura_listxattr(container, "/xattrs", NULL, 0), 18);
	IS(azekura_flistxattr(file, room, sizeof room), 18);
	OK(azekura_removexattr(container, "/xattrs", "user.one"));
	OK(azekura_fremovexattr(file, "user.two"));
	IS(azekura_getxattr(container, "/xattrs", "user.two", room, sizeof room), -ENODATA);
	FAILS(azekura_fsetxattr(file, "user.azekura.chunk_size", "65536", 5, 0), EBUSY, "file ");
	OK(azekura_close(file));
	OK(azekura_setxattr(container, "/xattrs", "user.azekura.chunk_size", "65536", 5, 0));
	OK(azekura_stat(container, "/xattrs", &stat));
	IS(stat.chunk_bytes, 65536);
}

static void directories(azekura_container *container)
{
	enum { ENTRIES = 500 };
	static char seen[ENTRIES];
	struct azekura_dirent entry, again;
	struct azekura_stat stat;
	azekura_dir *dir;
	char path[32];
	int at, more, count;
	int64_t half = 0;

	OK(azekura_mkdir(container, "/list", 0755));
	OK(azekura_opendir(container, "/list", &dir));
	IS(azekura_readdir(dir, &entry, NULL), 0);
	OK(azekura_closedir(dir));
	for (at = 0; at < ENTRIES; at++) {
		sprintf(path, "/list/%d", at);
		OK(azekura_close(make(container, path, O_RDWR)));
		OK(azekura_truncate(container, path, (uint64_t)at));
	}
	OK(azekura_opendir(container, "/list", &dir));
	for (count = 0; (more = azekura_readdir(dir, &entry, count % 2 ? &stat : NULL)) > 0; count++) {
		at = atoi(entry.name);
		HOLDS(!seen[at] && S_ISREG(entry.mode) && entry.name_bytes == strlen(entry.name));
		HOLDS(count % 2 == 0 || (stat.size == (uint64_t)at && stat.ino == entry.ino));
		seen[at] = 1;
		if (count == ENTRIES / 2)
			half = azekura_telldir(dir);
	}
	IS(more, 0);
	IS(count, ENTRIES);
	OK(azekura_closedir(dir));
	/* A cookie is good in another handle too. */
	OK(azekura_opendir(container, "/list", &dir));
	OK(azekura_seekdir(dir, (uint64_t)half));
	for (count = 0; azekura_readdir(dir, &entry, NULL) > 0; count++)
		;
	IS(count, ENTRIES - ENTRIES / 2 - 1);
	OK(azekura_seekdir(dir, 0));
	IS(azekura_readdir(dir, &again, NULL), 1);
	FAILS(azekura_readdir(dir, NULL, NULL), EFAULT, "'entry'");
	OK(azekura_closedir(dir));
	OK(azekura_closedir(NULL));
	FAILS(azekura_opendir(container, "/data", &dir), ENOTDIR, "'/data'");
	FAILS(azekura_opendir(container, "/absent", &dir), ENOENT, "'/absent'");
}

static void locks(azekura_container *container)
{
	struct azekura_lock_info info;
	azekura_file *one = make(container, "/locks", O_RDWR), *other;

	OK(azekura_open(container, "/locks", O_RDWR, 0, &other));
	OK(azekura_lock(one, AZEKURA_LOCK_EXCLUSIVE, 10, 20, 0));
	FAILS(azekura_lock(other, AZEKURA_LOCK_SHARED, 29, 1, 0), EAGAIN, "another owner");
	FAILS(azekura_lock(other, AZEKURA_LOCK_SHARED, 0, 0, 100), EAGAIN, "another owner");
	OK(azekura_lock(other, AZEKURA_LOCK_SHARED, 30, 1, 0));
	IS(azekura_lock_test(other, AZEKURA_LOCK_SHARED, 0, 0, &info), 1);
	HOLDS(info.start == 10 && info.bytes == 20 && info.mode == AZEKURA_LOCK_EXCLUSIVE);
	IS(info.pid, getpid());
	IS(azekura_lock_test(one, AZEKURA_LOCK_SHARED, 10, 20, &info), 0);
	OK(azekura_lock(one, AZEKURA_LOCK_NONE, 0, 0, 0));
	OK(azekura_lock(other, AZEKURA_LOCK_EXCLUSIVE, 0, 0, -1));
	IS(azekura_lock_test(one, AZEKURA_LOCK_SHARED, 5, 1, &info), 1);
	IS(info.bytes, 0);
	/* The two tables do not know each other, and closing gives back. */
	OK(azekura_lock_file(one, AZEKURA_LOCK_EXCLUSIVE, 0));
	FAILS(azekura_lock_file(other, AZEKURA_LOCK_SHARED, 0), EAGAIN, "another owner");
	OK(azekura_close(one));
	OK(azekura_lock_file(other, AZEKURA_LOCK_SHARED, 0));
	OK(azekura_close(other));
	OK(azekura_open(container, "/locks", O_RDONLY, 0, &one));
	OK(azekura_lock(one, AZEKURA_LOCK_SHARED, 0, 0, 0));
	FAILS(azekura_lock(one, AZEKURA_LOCK_EXCLUSIVE, 0, 0, 0), EBADF, "not open for this");
	FAILS(azekura_lock(one, 7, 0, 0, 0), EINVAL, "AZEKURA_LOCK_NONE");
	FAILS(azekura_lock(one, AZEKURA_LOCK_SHARED, UINT64_MAX, 2, 0), EINVAL, "2^63");
	OK(azekura_close(one));
}

int main(int argc, char **argv)
{
	azekura_container *container;
	azekura_file *file;
	azekura_pool *pool;

	HOLDS(argc == 2);
	OK(azekura_pool_open(argv[1], NULL, &pool));
	OK(azekura_container_open(pool, "default", 0, &container));
	data(container);
	opening(container);
	names(container);
	attributes(container);
	other_users(pool);
	xattrs(container);
	directories(container);
	locks(container);
	/* A file outlives the handles that it came from. */
	file = make(container, "/last", O_RDWR);
	OK(azekura_container_close(container));
	OK(azekura_pool_close(pool));
	IS(azekura_pwrite(file, "x", 1, 0), 1);
	OK(azekura_close(file));
	return 0;
}
