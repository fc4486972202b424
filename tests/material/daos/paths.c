/*
 * The file system by path and by open object: attributes, extended attributes, links, listings, and the
 * ways to a mount.
 *
 * paths POOL CONTAINER
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <daos.h>
#include <daos_fs.h>
#include <daos_fs_sys.h>
#include <daos_uns.h>

#include <sys/xattr.h>

#include "check.h"

static dfs_sys_t *sys;
static dfs_t *dfs;

static void
files(void)
{
	struct timespec times[2] = {{1000, 5}, {0, UTIME_OMIT}};
	struct stat stat, wanted = {.st_mode = 0640, .st_size = 3};
	dfs_obj_t *file, *again;
	daos_size_t size = 5;
	daos_event_t event;
	char data[16];
	dfs_obj_info_t info;
	daos_obj_id_t id;
	mode_t mode;
	bool done;

	CHECK_RC(dfs_sys_mkdir_p(sys, "/a/b/c", 0755, 0), 0);
	CHECK_RC(dfs_sys_mkdir_p(sys, "/a/b/c", 0755, 0), 0);
	CHECK_RC(dfs_sys_mkdir(sys, "/a/b", 0755, 0), EEXIST);
	CHECK_RC(dfs_sys_mkdir(sys, "//", 0755, 0), EEXIST);
	CHECK_RC(dfs_sys_remove(sys, "/", false, NULL), EINVAL);
	CHECK_RC(dfs_sys_mkdir(sys, "/x/y", 0755, 0), ENOENT);
	CHECK_RC(dfs_sys_mkdir(sys, "relative", 0755, 0), EINVAL);
	CHECK_RC(dfs_sys_open(sys, "/a/b/f", 0600, O_RDWR, 0, 0, NULL, &file), ENOENT);
	CHECK_RC(dfs_sys_open(sys, "/a/b/f", 0600, O_RDWR | O_CREAT | O_EXCL, OC_S2, 8192, NULL, &file), 0);
	CHECK_RC(dfs_sys_write(sys, file, "hello", 2, &size, NULL), 0);
	CHECK(size == 5);
	size = sizeof(data);
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(dfs_sys_read(sys, file, data, 0, &size, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0 && size == 7 && memcmp(data, "\0\0hello", 7) == 0);

	CHECK_RC(dfs_get_chunk_size(file, &size), 0);
	CHECK(size == 8192);
	CHECK_RC(dfs_get_mode(file, &mode), 0);
	CHECK(mode == (S_IFREG | 0600));
	CHECK_RC(dfs_obj2id(file, &id), 0);
	CHECK_RC(dfs_obj_get_info(dfs, file, &info), 0);
	CHECK(info.doi_oclass_id == OC_S2 && info.doi_chunk_size == 8192);
	CHECK(info.doi_oid.lo == id.lo && info.doi_oid.hi == id.hi);
	CHECK_RC(dfs_osetattr(dfs, file, &wanted, DFS_SET_ATTR_MODE | DFS_SET_ATTR_SIZE), 0);
	CHECK(wanted.st_size == 3 && wanted.st_mode == (S_IFREG | 0640));
	CHECK_RC(dfs_osetattr(dfs, file, &wanted, 1 << 20), EINVAL);
	CHECK_RC(dfs_dup(dfs, file, O_RDONLY, &again), 0);
	size = 1;
	CHECK_RC(dfs_sys_write(sys, again, "x", 0, &size, NULL), EBADF);
	CHECK_RC(dfs_sys_close(again), 0);
	CHECK_RC(dfs_sys_close(file), 0);

	CHECK_RC(dfs_sys_utimens(sys, "/a/b/f", times, 0), 0);
	CHECK_RC(dfs_sys_stat(sys, "/a/b/f", 0, &stat), 0);
	CHECK(stat.st_size == 3 && stat.st_atim.tv_sec == 1000 && stat.st_atim.tv_nsec == 5);
	CHECK(stat.st_mtim.tv_sec > 1000);
	wanted.st_mtim = (struct timespec){2000, 7};
	CHECK_RC(dfs_sys_setattr(sys, "/a/b/f", &wanted, DFS_SET_ATTR_MTIME, 0), 0);
	CHECK_RC(dfs_sys_chmod(sys, "/a/b/f", 0444), 0);
	CHECK_RC(dfs_sys_chown(sys, "/a/b/f", -1, getegid(), 0), 0);
	CHECK_RC(dfs_sys_stat(sys, "/a/b/f", 0, &stat), 0);
	CHECK(stat.st_mtim.tv_sec == 2000 && stat.st_mode == (S_IFREG | 0444));
	CHECK_RC(dfs_sys_access(sys, "/a/b/f", X_OK, 0), EACCES);
	CHECK_RC(dfs_sys_access(sys, "/a/b/f", R_OK, 0), 0);
	CHECK_RC(dfs_sys_access(sys, "/a/b/g", F_OK, 0), ENOENT);
	CHECK_RC(dfs_sys_chmod(sys, "/a/b/f", 0644), 0);
	CHECK_RC(dfs_sys_punch(sys, "/a/b/f", 1, DFS_MAX_FSIZE), 0);
	CHECK_RC(dfs_sys_stat(sys, "/a/b/f", 0, &stat), 0);
	CHECK(stat.st_size == 1);
	CHECK_RC(dfs_sys_mknod(sys, "/a/b/g", S_IFREG | 0600, 0, 0), 0);
	CHECK_RC(dfs_sys_mknod(sys, "/a/b/g", S_IFREG | 0600, 0, 0), EEXIST);
	CHECK_RC(dfs_sys_mknod(sys, "/a/b/h", S_IFBLK | 0600, 0, 0), EINVAL);
	CHECK_RC(dfs_chown(dfs, NULL, "a", getuid(), getgid(), 0), 0);
}

static void
links(void)
{
	dfs_obj_t *link, *one, *two;
	char text[16] = "................";
	daos_size_t size = sizeof(text);
	struct stat stat, first;

	CHECK_RC(dfs_sys_symlink(sys, "b/f", "/a/link"), 0);
	CHECK_RC(dfs_sys_symlink(sys, "nowhere", "/a/dangling"), 0);
	CHECK_RC(dfs_sys_readlink(sys, "/a/link", text, &size), 0);
	CHECK(size == 4 && strcmp(text, "b/f") == 0);
	size = 2;
	CHECK_RC(dfs_sys_readlink(sys, "/a/dangling", text, &size), 0);
	CHECK(size == 8 && memcmp(text, "no", 2) == 0);
	CHECK_RC(dfs_sys_readlink(sys, "/a/b", text, &size), EINVAL);
	CHECK_RC(dfs_sys_stat(sys, "/a/link", O_NOFOLLOW, &stat), 0);
	CHECK(S_ISLNK(stat.st_mode));
	CHECK_RC(dfs_sys_stat(sys, "/a/link", 0, &stat), 0);
	CHECK(S_ISREG(stat.st_mode));
	CHECK_RC(dfs_sys_access(sys, "/a/dangling", F_OK, 0), ENOENT);
	CHECK_RC(dfs_sys_access(sys, "/a/dangling", F_OK, O_NOFOLLOW), 0);
	CHECK_RC(dfs_lookup(dfs, "/a/link", O_RDONLY | O_NOFOLLOW, &link, NULL, NULL), 0);
	size = 0;
	CHECK_RC(dfs_get_symlink_value(link, NULL, &size), 0);
	CHECK(size == 4);
	CHECK_RC(dfs_get_symlink_value(link, text, &size), 0);
	CHECK(strcmp(text, "b/f") == 0);
	CHECK_RC(dfs_release(link), 0);

	CHECK_RC(dfs_lookup(dfs, "/a", O_RDWR, &one, NULL, NULL), 0);
	CHECK_RC(dfs_get_symlink_value(one, text, &size), EINVAL);
	CHECK_RC(dfs_lookup(dfs, "/a/b", O_RDWR, &two, NULL, NULL), 0);
	CHECK_RC(dfs_stat(dfs, one, "dangling", &first), 0);
	CHECK_RC(dfs_exchange(dfs, one, "dangling", two, "g"), 0);
	CHECK_RC(dfs_stat(dfs, two, "g", &stat), 0);
	CHECK(stat.st_ino == first.st_ino);
	CHECK_RC(dfs_exchange(dfs, one, "dangling", two, "none"), ENOENT);
	CHECK_RC(dfs_release(one), 0);
	CHECK_RC(dfs_release(two), 0);
}

static void
extended_attributes(void)
{
	char list[64], value[16];
	daos_size_t size = 0;
	dfs_obj_t *file;

	CHECK_RC(dfs_sys_setxattr(sys, "/a/b/f", "user.one", "1234", 4, XATTR_CREATE, 0), 0);
	CHECK_RC(dfs_sys_setxattr(sys, "/a/b/f", "user.one", "1234", 4, XATTR_CREATE, 0), EEXIST);
	CHECK_RC(dfs_sys_getxattr(sys, "/a/link", "user.one", NULL, &size, 0), 0);
	CHECK(size == 4);
	CHECK_RC(dfs_sys_getxattr(sys, "/a/b/f", "user.one", value, &size, 0), 0);
	CHECK(memcmp(value, "1234", 4) == 0);
	size = 3;
	CHECK_RC(dfs_sys_getxattr(sys, "/a/b/f", "user.one", value, &size, 0), ERANGE);
	CHECK_RC(dfs_sys_getxattr(sys, "/a/b/f", "user.two", value, &size, 0), ENODATA);
	CHECK_RC(dfs_lookup(dfs, "/a/b/f", O_RDWR, &file, NULL, NULL), 0);
	CHECK_RC(dfs_setxattr(dfs, file, "user.two", "", 0, 0), 0);
	size = sizeof(list);
	CHECK_RC(dfs_listxattr(dfs, file, list, &size), 0);
	CHECK(size == 18);
	size = sizeof(list);
	CHECK_RC(dfs_sys_listxattr(sys, "/a/b/f", list, &size, 0), 0);
	CHECK(size == 18);
	CHECK_RC(dfs_removexattr(dfs, file, "user.two"), 0);
	CHECK_RC(dfs_removexattr(dfs, file, "user.two"), ENODATA);
	size = sizeof(value);
	CHECK_RC(dfs_getxattr(dfs, file, "user.one", value, &size), 0);
	CHECK(size == 4);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_sys_removexattr(sys, "/a/b/f", "user.one", 0), 0);
}

static void
listings(void)
{
	enum { FILES = 2000 };
	static bool seen[FILES];
	struct dirent *entry;
	char path[64];
	int found = 0;
	DIR *dir;

	CHECK_RC(dfs_sys_mkdir(sys, "/many", 0755, 0), 0);
	for (int number = 0; number < FILES; number++) {
		snprintf(path, sizeof(path), "/many/some-longer-name-%d", number);
		CHECK_RC(dfs_sys_mknod(sys, path, 0600, 0, 0), 0);
	}
	CHECK_RC(dfs_sys_opendir(sys, path, 0, &dir), ENOTDIR);
	CHECK_RC(dfs_sys_opendir(sys, "/many/", 0, &dir), 0);
	for (;;) {
		CHECK_RC(dfs_sys_readdir(sys, dir, &entry), 0);
		if (entry == NULL)
			break;
		int number = atoi(strrchr(entry->d_name, '-') + 1);
		CHECK(number >= 0 && number < FILES && !seen[number] && entry->d_type == DT_REG);
		seen[number] = true;
		found++;
	}
	CHECK_RC(dfs_sys_readdir(sys, dir, &entry), 0);
	CHECK(found == FILES && entry == NULL);
	CHECK_RC(dfs_sys_closedir(dir), 0);
	CHECK_RC(dfs_sys_remove_type(sys, "/many", false, S_IFREG, NULL), EINVAL);
	CHECK_RC(dfs_sys_remove_type(sys, path, false, S_IFDIR, NULL), ENOTDIR);
	CHECK_RC(dfs_sys_remove_type(sys, path, false, S_IFREG, NULL), 0);
	CHECK_RC(dfs_sys_remove(sys, "/many", false, NULL), ENOTEMPTY);
	CHECK_RC(dfs_sys_remove(sys, "/many", true, NULL), 0);
	CHECK_RC(dfs_sys_opendir(sys, "/", 0, &dir), 0);
	CHECK_RC(dfs_sys_readdir(sys, dir, &entry), 0);
	CHECK(strcmp(entry->d_name, "a") == 0);
	CHECK_RC(dfs_sys_closedir(dir), 0);
}

static void
ways_to_a_mount(const char *pool_name, const char *name)
{
	dfs_attr_t attr = {.da_chunk_size = 65536}, found;
	struct duns_attr_t path = {.da_flags = 0};
	daos_handle_t pool, container;
	dfs_sys_t *other;
	dfs_t *mount, *made;
	struct stat stat;
	char buffer[512], text[600];
	d_iov_t bytes;
	uuid_t uuid;

	CHECK_RC(dfs_connect(pool_name, NULL, "none", O_RDWR, NULL, &mount), ENOENT);
	CHECK_RC(dfs_connect("no-such-pool", NULL, name, O_RDWR, NULL, &mount), ENOENT);
	CHECK_RC(dfs_connect(pool_name, NULL, "way", O_RDWR | O_CREAT, &attr, &mount), 0);
	CHECK_RC(dfs_query(mount, &found), 0);
	CHECK(found.da_chunk_size == 65536);
	CHECK_RC(dfs_mkdir(mount, NULL, "d", 0755, 0), 0);
	CHECK_RC(dfs_disconnect(mount), 0);
	CHECK_RC(dfs_sys_connect(pool_name, NULL, "way", O_RDONLY, 0, NULL, &other), 0);
	CHECK_RC(dfs_sys_stat(other, "/d", 0, &stat), 0);
	CHECK_RC(dfs_sys_mkdir(other, "/e", 0755, 0), EROFS);
	CHECK_RC(dfs_sys_disconnect(other), 0);
	CHECK_RC(dfs_destroy(pool_name, NULL, "way", 0, NULL), 0);
	CHECK_RC(dfs_destroy(pool_name, NULL, "way", 0, NULL), ENOENT);

	CHECK_RC(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(dfs_cont_create(pool, &uuid, NULL, &container, &made), 0);
	CHECK_RC(dfs_umount(made), 0);
	CHECK_RC(dfs_sys_mount(pool, container, O_RDWR, DFS_SYS_NO_LOCK, &other), 0);
	CHECK_RC(dfs_sys_set_prefix(other, "/mnt"), 0);
	CHECK_RC(dfs_sys_mkdir(other, "/mnt/d", 0700, 0), 0);
	d_iov_set(&bytes, buffer, sizeof(buffer));
	CHECK_RC(dfs_sys_local2global(other, &bytes), 0);
	CHECK_RC(dfs_sys_umount(other), 0);
	CHECK_RC(dfs_sys_global2local(pool, container, 0, 0, bytes, &other), 0);
	CHECK_RC(dfs_sys_stat(other, "/mnt/d", 0, &stat), 0);
	CHECK_RC(dfs_sys_umount(other), 0);
	CHECK_RC(dfs_sys_umount(NULL), EINVAL);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_cont_open(pool, name, DAOS_COO_RO, &container, NULL, NULL), 0);
	CHECK_RC(dfs_sys_mount(pool, container, O_RDWR, 0, &other), 0);
	CHECK_RC(dfs_sys_stat(other, "/a", 0, &stat), 0);
	CHECK_RC(dfs_sys_mkdir(other, "/no", 0755, 0), EROFS);
	CHECK_RC(dfs_sys_umount(other), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);

	snprintf(text, sizeof(text), "daos://%s/%s/some/path", "pool", name);
	CHECK_RC(duns_resolve_path(text, &path), 0);
	CHECK(strcmp(path.da_pool, "pool") == 0 && strcmp(path.da_cont, name) == 0);
	CHECK(strcmp(path.da_rel_path, "/some/path") == 0 && path.da_type == DAOS_PROP_CO_LAYOUT_POSIX);
	duns_destroy_attr(&path);
	CHECK(path.da_rel_path == NULL);
	CHECK_RC(duns_resolve_path("/tmp", &path), ENODATA);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK_RC(dfs_init(), 0);
	CHECK_RC(dfs_sys_connect(argv[1], NULL, argv[2], O_RDWR | O_CREAT, DFS_SYS_NO_CACHE, NULL, &sys), 0);
	CHECK_RC(dfs_sys2base(sys, &dfs), 0);
	files();
	links();
	extended_attributes();
	listings();
	ways_to_a_mount(argv[1], argv[2]);
	CHECK_RC(dfs_sys_disconnect(sys), 0);
	CHECK_RC(dfs_fini(), 0);
	CHECK_RC(dfs_fini(), EINVAL);
	return 0;
}
