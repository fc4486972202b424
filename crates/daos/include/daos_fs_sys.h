/*
 * The file system of a container by path. Paths start at its root; symlinks in them are followed, and
 * one at their end too unless `flags` (`sflags`) has O_NOFOLLOW. Everything else is as in <daos_fs.h>.
 */
#ifndef AZEKURA_DAOS_FS_SYS_H
#define AZEKURA_DAOS_FS_SYS_H

#include <dirent.h>
#include <time.h>

#include <daos.h>
#include <daos_fs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a mount; neither makes a difference. */
#define DFS_SYS_NO_CACHE 1
#define DFS_SYS_NO_LOCK 2

typedef struct dfs_sys dfs_sys_t;

/* As dfs_connect() and dfs_mount(); `mflags` are their flags. */
int dfs_sys_connect(const char *pool, const char *sys, const char *cont, int mflags, int sflags,
		    dfs_attr_t *attr, dfs_sys_t **dfs_sys);
int dfs_sys_disconnect(dfs_sys_t *dfs_sys);
int dfs_sys_mount(daos_handle_t poh, daos_handle_t coh, int mflags, int sflags,
		  dfs_sys_t **dfs_sys);
int dfs_sys_umount(dfs_sys_t *dfs_sys);
int dfs_sys_set_prefix(dfs_sys_t *dfs_sys, const char *prefix);
int dfs_sys_local2global(dfs_sys_t *dfs_sys, d_iov_t *glob);
int dfs_sys_global2local(daos_handle_t poh, daos_handle_t coh, int mflags, int sflags, d_iov_t glob,
			 dfs_sys_t **dfs_sys);
/* As dfs_local2global_all(). */
int dfs_sys_local2global_all(dfs_sys_t *dfs_sys, d_iov_t *glob);
int dfs_sys_global2local_all(int mflags, int sflags, d_iov_t glob, dfs_sys_t **dfs_sys);
/* The mount, which stays that of *dfs_sys. */
int dfs_sys2base(dfs_sys_t *dfs_sys, dfs_t **dfs);

int dfs_sys_access(dfs_sys_t *dfs_sys, const char *path, int mask, int flags);
int dfs_sys_chmod(dfs_sys_t *dfs_sys, const char *path, mode_t mode);
int dfs_sys_chown(dfs_sys_t *dfs_sys, const char *path, uid_t uid, gid_t gid, int flags);
/* As dfs_osetattr(), but that *stbuf stays as it is. */
int dfs_sys_setattr(dfs_sys_t *dfs_sys, const char *path, struct stat *stbuf, int flags, int sflags);
/* Times of last access and change, with UTIME_NOW and UTIME_OMIT. */
int dfs_sys_utimens(dfs_sys_t *dfs_sys, const char *path, const struct timespec times[2], int flags);
int dfs_sys_stat(dfs_sys_t *dfs_sys, const char *path, int flags, struct stat *stbuf);

int dfs_sys_listxattr(dfs_sys_t *dfs_sys, const char *path, char *list, daos_size_t *size, int flags);
int dfs_sys_getxattr(dfs_sys_t *dfs_sys, const char *path, const char *name, void *value,
		     daos_size_t *size, int flags);
int dfs_sys_setxattr(dfs_sys_t *dfs_sys, const char *path, const char *name, const void *value,
		     daos_size_t size, int flags, int sflags);
int dfs_sys_removexattr(dfs_sys_t *dfs_sys, const char *path, const char *name, int flags);

/* As dfs_get_symlink_value(). */
int dfs_sys_readlink(dfs_sys_t *dfs_sys, const char *path, char *buf, daos_size_t *size);
int dfs_sys_symlink(dfs_sys_t *dfs_sys, const char *target, const char *path);
/* A file (S_IFREG or no kind), directory, named pipe or socket. */
int dfs_sys_mknod(dfs_sys_t *dfs_sys, const char *path, mode_t mode, daos_oclass_id_t cid,
		  daos_size_t chunk_size);
int dfs_sys_mkdir(dfs_sys_t *dfs_sys, const char *dir, mode_t mode, daos_oclass_id_t cid);
/* With all directories on the way; one that is there is fine. */
int dfs_sys_mkdir_p(dfs_sys_t *dfs_sys, const char *dir, mode_t mode, daos_oclass_id_t cid);

/* As dfs_open(); without a kind in `mode` a new entry is a file. Without O_CREAT whatever is there is
 * opened. */
int dfs_sys_open(dfs_sys_t *dfs_sys, const char *path, mode_t mode, int flags, daos_oclass_id_t cid,
		 daos_size_t chunk_size, const char *value, dfs_obj_t **obj);
int dfs_sys_close(dfs_obj_t *obj);
/* *size bytes at an offset; of a read it becomes how many there were. */
int dfs_sys_read(dfs_sys_t *dfs_sys, dfs_obj_t *obj, void *buf, daos_off_t off, daos_size_t *size,
		 daos_event_t *ev);
int dfs_sys_write(dfs_sys_t *dfs_sys, dfs_obj_t *obj, const void *buf, daos_off_t off,
		  daos_size_t *size, daos_event_t *ev);
int dfs_sys_punch(dfs_sys_t *dfs_sys, const char *path, daos_off_t off, daos_size_t len);

int dfs_sys_remove(dfs_sys_t *dfs_sys, const char *path, bool force, daos_obj_id_t *oid);
/* Only what is of the kind in `mode`: else ENOTDIR, where that is S_IFDIR, or EINVAL. */
int dfs_sys_remove_type(dfs_sys_t *dfs_sys, const char *path, bool force, mode_t mode,
			daos_obj_id_t *oid);

/* A listing, which only the next two take. *dirent is NULL at the end, and good until the next call. */
int dfs_sys_opendir(dfs_sys_t *dfs_sys, const char *dir, int flags, DIR **dirp);
int dfs_sys_readdir(dfs_sys_t *dfs_sys, DIR *dirp, struct dirent **dirent);
int dfs_sys_closedir(DIR *dirp);

#ifdef __cplusplus
}
#endif

#endif
