/*
 * The file system of a container.
 *
 * Functions give 0 or a positive number of <errno.h>. A `parent` of NULL is the root directory; a
 * `name` is one name, not a path. With an event the call goes on in the background, as <daos_event.h>
 * says. All functions may be called from several threads, also on one object.
 */
#ifndef AZEKURA_DAOS_FS_H
#define AZEKURA_DAOS_FS_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

#include <daos.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest path and name in bytes, without the zero byte. */
#define DFS_MAX_PATH 4095
#define DFS_MAX_NAME 255
/* As the length for dfs_punch(): everything from the offset on. */
#define DFS_MAX_FSIZE (~0ULL)

/* A mounted container, and an object of it that is open. */
typedef struct dfs dfs_t;
typedef struct dfs_obj dfs_obj_t;

/* Ranges of a file, in bytes. */
typedef struct {
	daos_size_t iod_nr;
	daos_range_t *iod_rgs;
} dfs_iod_t;

/* What new entries of a container start with; zeros stand for the pool's defaults. */
typedef struct {
	uint64_t da_id;
	/* Bytes, a multiple of 4096 up to 64 MiB. */
	daos_size_t da_chunk_size;
	/* Of files and directories for which the next two say nothing. */
	daos_oclass_id_t da_oclass_id;
	daos_oclass_id_t da_file_oclass_id;
	daos_oclass_id_t da_dir_oclass_id;
	/* Not read. */
	daos_prop_t *da_props;
	uint32_t da_mode;
} dfs_attr_t;

/*
 * Makes a container; `attr` and `uuid` may be NULL. Where `coh` is not NULL it is opened, and where
 * `dfs` is not NULL it is mounted too. EEXIST.
 */
int dfs_cont_create_with_label(daos_handle_t poh, const char *label, dfs_attr_t *attr, uuid_t *uuid,
			       daos_handle_t *coh, dfs_t **dfs);

/* As this, under a name that nobody has given; *uuid, as text, opens the container. */
int dfs_cont_create(daos_handle_t poh, uuid_t *uuid, dfs_attr_t *attr, daos_handle_t *coh,
		    dfs_t **dfs);

/* To be called before dfs_connect() and dfs_destroy(); counted. As daos_init() and daos_fini(). */
int dfs_init(void);
int dfs_fini(void);

/*
 * Connects to a pool, opens a container and mounts it. `flags` is O_RDONLY or O_RDWR, with O_CREAT to
 * make the container if it is not there, as `attr` says, which may be NULL. `sys` is not read.
 */
int dfs_connect(const char *pool, const char *sys, const char *cont, int flags, dfs_attr_t *attr,
		dfs_t **dfs);
int dfs_disconnect(dfs_t *dfs);
/* As daos_cont_destroy(). */
int dfs_destroy(const char *pool, const char *sys, const char *cont, int force, daos_event_t *ev);

/* Mounts a container; `flags` is O_RDONLY or O_RDWR, which for a container that was opened for reading
 * only comes to the same. What writes then fails: EROFS. To be ended by dfs_umount(). */
int dfs_mount(daos_handle_t poh, daos_handle_t coh, int flags, dfs_t **dfs);
int dfs_umount(dfs_t *dfs);

/* What new entries of the container start with. */
int dfs_query(dfs_t *dfs, dfs_attr_t *attr);

/* As daos_pool_local2global(). `flags` of 0 takes those of the mount that was sent. */
int dfs_local2global(dfs_t *dfs, d_iov_t *glob);
int dfs_global2local(daos_handle_t poh, daos_handle_t coh, int flags, d_iov_t glob, dfs_t **dfs);

/* As these, with all that a process needs which has neither the pool nor the container; the bytes hold the
 * pool's secret. The mount is to be ended by dfs_disconnect(). */
int dfs_local2global_all(dfs_t *dfs, d_iov_t *glob);
int dfs_global2local_all(int flags, d_iov_t glob, dfs_t **dfs);

/* Handles of the pool and the container of a mount, each to be given back. EINVAL for any other. */
int dfs_pool_get(dfs_t *dfs, daos_handle_t *poh);
int dfs_pool_put(dfs_t *dfs, daos_handle_t poh);
int dfs_cont_get(dfs_t *dfs, daos_handle_t *coh);
int dfs_cont_put(dfs_t *dfs, daos_handle_t coh);

/* What all paths of dfs_lookup() start with and what is taken off them; NULL for nothing. */
int dfs_set_prefix(dfs_t *dfs, const char *prefix);

/* Makes everything durable that was written to the container before, by whomever. */
int dfs_sync(dfs_t *dfs);

/*
 * Opens what a path leads to. `flags` is O_RDONLY or O_RDWR, with O_NOFOLLOW for a symlink itself.
 * `mode` (type and permissions) and `stbuf` may be NULL. To be ended by dfs_release().
 */
int dfs_lookup(dfs_t *dfs, const char *path, int flags, dfs_obj_t **obj, mode_t *mode,
	       struct stat *stbuf);
int dfs_lookup_rel(dfs_t *dfs, dfs_obj_t *parent, const char *name, int flags, dfs_obj_t **obj,
		   mode_t *mode, struct stat *stbuf);

/*
 * Opens or makes a file, directory or symlink: `mode` says which (S_IFREG, S_IFDIR, S_IFLNK) and has
 * the permissions of a new one. `flags` is O_RDONLY or O_RDWR, with O_CREAT, O_EXCL and O_TRUNC.
 * `cid` and `chunk_size` (bytes) are those of a new one; 0 stands for what the directory gives.
 * `value` is the text of a new symlink. To be ended by dfs_release().
 */
int dfs_open(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode, int flags,
	     daos_oclass_id_t cid, daos_size_t chunk_size, const char *value, dfs_obj_t **obj);
int dfs_release(dfs_obj_t *obj);
/* Opens the same object once more; `flags` is O_RDONLY or O_RDWR. */
int dfs_dup(dfs_t *dfs, dfs_obj_t *obj, int flags, dfs_obj_t **new_obj);

/* As daos_pool_local2global(). `flags` of 0 takes those of the object that was sent. */
int dfs_obj_local2global(dfs_t *dfs, dfs_obj_t *obj, d_iov_t *glob);
int dfs_obj_global2local(dfs_t *dfs, int flags, d_iov_t glob, dfs_obj_t **obj);

/* Reads at an offset; fewer bytes than there is room for only at the end. Holes read as zeros. */
int dfs_read(dfs_t *dfs, dfs_obj_t *obj, d_sg_list_t *sgl, daos_off_t off, daos_size_t *read_size,
	     daos_event_t *ev);
/* Writes all bytes of the list at an offset. */
int dfs_write(dfs_t *dfs, dfs_obj_t *obj, d_sg_list_t *sgl, daos_off_t off, daos_event_t *ev);
/* As these, for ranges of bytes that are as long, together, as the memory of the list. */
int dfs_readx(dfs_t *dfs, dfs_obj_t *obj, dfs_iod_t *iod, d_sg_list_t *sgl, daos_size_t *read_size,
	      daos_event_t *ev);
int dfs_writex(dfs_t *dfs, dfs_obj_t *obj, dfs_iod_t *iod, d_sg_list_t *sgl, daos_event_t *ev);
int dfs_get_size(dfs_t *dfs, dfs_obj_t *obj, daos_size_t *size);
/* A handle of an open file for daos_array_*(), with cells of one byte, for as long as the file is open; not to
 * be closed. EISDIR, EINVAL. */
int dfs_get_file_oh(dfs_obj_t *obj, daos_handle_t *oh);
/* Of the file with this id; `chunk_size` is not read. */
int dfs_get_size_by_oid(dfs_t *dfs, daos_obj_id_t oid, daos_size_t chunk_size, daos_size_t *size);
/* Makes a hole. With DFS_MAX_FSIZE, or from the end of the file on, sets the length to `off`. */
int dfs_punch(dfs_t *dfs, dfs_obj_t *obj, daos_off_t off, daos_size_t len);

int dfs_mkdir(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode, daos_oclass_id_t cid);
/* Removes anything; with `force` also a directory that is not empty. `oid` may be NULL. */
int dfs_remove(dfs_t *dfs, dfs_obj_t *parent, const char *name, bool force, daos_obj_id_t *oid);
/* Moves, and replaces what has the new name. `oid`, of what was replaced, may be NULL. */
int dfs_move(dfs_t *dfs, dfs_obj_t *parent, const char *name, dfs_obj_t *new_parent,
	     const char *new_name, daos_obj_id_t *oid);

/* Swaps two names. */
int dfs_exchange(dfs_t *dfs, dfs_obj_t *parent1, const char *name1, dfs_obj_t *parent2,
		 const char *name2);

/* For an object that was moved: an open object goes with its id, so nothing is to be done. */
int dfs_update_parent(dfs_obj_t *obj, dfs_obj_t *src_obj, const char *name);

/* Attributes of a name, of which a symlink is not followed, or of an open object. NULL or "/" as the
 * name is the parent itself. */
int dfs_stat(dfs_t *dfs, dfs_obj_t *parent, const char *name, struct stat *stbuf);
int dfs_ostat(dfs_t *dfs, dfs_obj_t *obj, struct stat *stbuf);
/* `mask` is F_OK or of R_OK, W_OK, X_OK. Symlinks are followed. NULL as the name: the parent. */
int dfs_access(dfs_t *dfs, dfs_obj_t *parent, const char *name, int mask);
int dfs_chmod(dfs_t *dfs, dfs_obj_t *parent, const char *name, mode_t mode);
/* Owner and group; -1 leaves one as it is. `flags` is 0, or O_NOFOLLOW for a symlink itself. */
int dfs_chown(dfs_t *dfs, dfs_obj_t *parent, const char *name, uid_t uid, gid_t gid, int flags);

/* What dfs_osetattr() is to take from *stbuf, which then gets all attributes. */
#define DFS_SET_ATTR_MODE (1 << 0)
#define DFS_SET_ATTR_ATIME (1 << 1)
#define DFS_SET_ATTR_MTIME (1 << 2)
#define DFS_SET_ATTR_SIZE (1 << 3)
#define DFS_SET_ATTR_UID (1 << 4)
#define DFS_SET_ATTR_GID (1 << 5)
int dfs_osetattr(dfs_t *dfs, dfs_obj_t *obj, struct stat *stbuf, int flags);

/*
 * Extended attributes, with the names and rules of Linux. `flags` is 0, XATTR_CREATE or XATTR_REPLACE.
 * *size is the room that there is, and becomes the length; with room of 0 only that. The list is of
 * names, each with its zero byte. ENODATA, ERANGE, EOPNOTSUPP.
 */
int dfs_setxattr(dfs_t *dfs, dfs_obj_t *obj, const char *name, const void *value, daos_size_t size,
		 int flags);
int dfs_getxattr(dfs_t *dfs, dfs_obj_t *obj, const char *name, void *value, daos_size_t *size);
int dfs_removexattr(dfs_t *dfs, dfs_obj_t *obj, const char *name);
int dfs_listxattr(dfs_t *dfs, dfs_obj_t *obj, char *list, daos_size_t *size);

/* The text of a symlink that was opened itself, as far as it fits into *size bytes, which becomes what
 * all takes with its zero byte. EINVAL for anything else. */
int dfs_get_symlink_value(dfs_obj_t *obj, char *buf, daos_size_t *size);

/* What an open object is: its id, its mode, the chunk size of a file in bytes, and all of that with the
 * classes that new entries of the directory get, or, where it is none, of the container. */
typedef struct {
	daos_oclass_id_t doi_oclass_id;
	daos_size_t doi_chunk_size;
	daos_oclass_id_t doi_dir_oclass_id;
	daos_oclass_id_t doi_file_oclass_id;
	daos_obj_id_t doi_oid;
} dfs_obj_info_t;
int dfs_obj2id(dfs_obj_t *obj, daos_obj_id_t *oid);
int dfs_get_mode(dfs_obj_t *obj, mode_t *mode);
int dfs_get_chunk_size(dfs_obj_t *obj, daos_size_t *chunk_size);
int dfs_obj_get_info(dfs_t *dfs, dfs_obj_t *obj, dfs_obj_info_t *info);

/* Up to *nr names of a directory, without the dots; *nr becomes how many. The end is reached when
 * daos_anchor_is_eof(). Only d_name, d_ino and d_type are set. */
int dfs_readdir(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr,
		struct dirent *dirs);
/* As this, with the attributes of each, of which symlinks are not followed. */
int dfs_readdirplus(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr,
		    struct dirent *dirs, struct stat *stbufs);
/*
 * As dfs_readdir(), with a call of `op`, which may be NULL, for each name; together they have at most `size`
 * bytes. What `op` gives, if not 0, ends the listing behind that name, and is given. E2BIG if not even the
 * first name has so few bytes.
 */
typedef int (*dfs_filler_cb_t)(dfs_t *dfs, dfs_obj_t *obj, const char name[], void *arg);
int dfs_iterate(dfs_t *dfs, dfs_obj_t *obj, daos_anchor_t *anchor, uint32_t *nr, size_t size,
		dfs_filler_cb_t op, void *arg);
/* Makes an anchor of which a listing goes on with this name. ENOENT. */
int dfs_dir_anchor_set(dfs_obj_t *obj, const char name[], daos_anchor_t *anchor);
/* Parts of a directory that may be listed at the same time: one. `anchors` may be NULL, or has room for *nr
 * of them. EINVAL for an `index` beyond it. */
int dfs_obj_anchor_split(dfs_obj_t *obj, uint32_t *nr, daos_anchor_t *anchors);
int dfs_obj_anchor_set(dfs_obj_t *obj, uint32_t index, daos_anchor_t *anchor);

/* What new entries of a directory get, and new ones in those; 0 is what the container gives. `flags` is not
 * read. ENOTDIR. */
int dfs_obj_set_chunk_size(dfs_t *dfs, dfs_obj_t *obj, int flags, daos_size_t csize);
int dfs_obj_set_oclass(dfs_t *dfs, dfs_obj_t *obj, int flags, daos_oclass_id_t cid);
/* The class for "KIND:SIZE": KIND is file, dir or directory, SIZE is single (one target) or max (all). */
int dfs_suggest_oclass(dfs_t *dfs, const char *hint, daos_oclass_id_t *cid);

#ifdef __cplusplus
}
#endif

#endif
