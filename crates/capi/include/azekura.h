/*
 * azekura.h - pools, containers, objects and files of Azekura for C and C++ programs.
 *
 * Rules that hold for every function, unless its own text says otherwise
 * ----------------------------------------------------------------------
 * Results.  0 or a positive number is success; a failure is a negative errno (-ENOENT). The
 *   variable errno is not part of the interface. azekura_error_message() gives a sentence about the
 *   last failure of the calling thread: what failed, on what, and what to do.
 * Errors.  Besides the errors named at a function, each may give
 *     -EINVAL     a handle is NULL, or an argument has no meaning;
 *     -EFAULT     another pointer is NULL that may not be;
 *     -ETIMEDOUT  an engine of the pool could not be reached within the time-out of the pool
 *                 handle. For a call that changes something it is not known whether it was done;
 *     -EIO        an engine's disk failed, or data there are damaged;
 *     -ENOSPC     a target that has to store something is full;
 *     -ENOMEM     there is no memory.
 * Ownership.  A function that gives a handle through `T **` makes the caller its owner, who closes
 *   it once with the function named there; after a failure the place holds NULL. Closing NULL does
 *   nothing and gives 0. Handles are counted inside, so they may be closed in any order: a file
 *   stays usable after its container and pool handles were closed. Arguments are only looked at
 *   during the call; the library keeps no pointer of the caller, and the caller frees nothing that
 *   the library gives but by closing handles.
 * Threads.  Every function may be called by any number of threads at once, also on one handle. Only
 *   two things are the caller's to arrange: a handle is closed when no other thread is using it, and
 *   a listing (azekura_keys, azekura_dir) is used by one thread at a time (-EBUSY otherwise).
 *   Each call is carried out by the thread that makes it. The library starts no threads, prints
 *   nothing, installs no signal handlers and never ends the process. Calls are not
 *   async-signal-safe, and are not interrupted by signals.
 * Fork.  A forked child may use, and closes on its own, every handle that it inherits; parent and
 *   child do not disturb each other. The child is a client of its own: it connects when it makes
 *   its first call, and it inherits open files but no locks, as with fcntl(2). Two limits: a file
 *   without a name (unlinked, or O_TMPFILE) stays for the child only if the child makes a call
 *   before the parent closes the file; and a listing in the midst of a call at the fork must only
 *   be closed by the child. fork() waits for the calls of other threads, for up to 0.1 s. fork()
 *   from a signal handler that interrupted a call of this library is not supported.
 * Units.  Sizes and offsets are in bytes; times in the unit that the name ends with. Offsets and
 *   file lengths are below 2^63.
 * Text.  Strings end with a zero byte. Names of pools and containers are UTF-8; paths are any bytes.
 */
#ifndef AZEKURA_H
#define AZEKURA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ---------------------------------------------------------------------------------- */

#define AZEKURA_VERSION_MAJOR 0
#define AZEKURA_VERSION_MINOR 1
#define AZEKURA_VERSION_PATCH 0
#define AZEKURA_MAKE_VERSION(major, minor, patch) \
	(((uint32_t)(major) << 16) | ((uint32_t)(minor) << 8) | (uint32_t)(patch))
/* The release of this header, to be compared with azekura_version(). */
#define AZEKURA_VERSION \
	AZEKURA_MAKE_VERSION(AZEKURA_VERSION_MAJOR, AZEKURA_VERSION_MINOR, AZEKURA_VERSION_PATCH)

/* The release of the library that runs. Never fails. */
uint32_t azekura_version(void);

/* The same as text ("0.1.0"). The text is the library's and stays for ever. */
const char *azekura_version_string(void);

/* ---- errors ----------------------------------------------------------------------------------- */

/*
 * A sentence about the last failure of the calling thread, "" before there was one. Success does not
 * change it. The text is the library's, and good until the thread's next call that fails.
 */
const char *azekura_error_message(void);

/*
 * The words for an errno, positive or negative (as strerror, but safe with threads). The text is the
 * library's, and good until the thread's next call of this function.
 */
const char *azekura_strerror(int error);

/* ---- pools ------------------------------------------------------------------------------------ */

/* A pool: the session of this process with all its engines. */
typedef struct azekura_pool azekura_pool;

/* Do not look whether the pool answers; the first call that needs it will tell. */
#define AZEKURA_POOL_LAZY 1u

struct azekura_pool_options {
	uint32_t timeout_ms; /* how long a call waits for an engine, in ms; 0: 10,000 */
	uint32_t flags;      /* 0 or AZEKURA_POOL_LAZY */
	uint64_t reserved[7]; /* 0 */
};
#define AZEKURA_POOL_OPTIONS_INIT { 0, 0, { 0, 0, 0, 0, 0, 0, 0 } }

/*
 * Opens a pool. `name`: a name that is known on this machine ("default"), the path of a pool file
 * (with a '/' or ending in ".toml"), or a URL (azekura://HOST:PORT/NAME?secret_file=PATH). `options`
 * may be NULL. The timeout_ms is for each exchange with an engine; an engine that failed once is
 * waited for at most 1 s by later calls, until it is back. Where an engine hangs rather than refuses,
 * making a connection may take 10 s more. fsync, truncation and the removal of a
 * container may take 12 times as long, since a slow disk is no failure.
 * Gives a handle to be closed with azekura_pool_close().
 * Errors: -ENOENT no such pool is known here; -EACCES the pool file or its secret is open to others,
 * or cannot be used; -EINVAL the pool file is damaged, the URL is none, an option is unknown.
 */
int azekura_pool_open(const char *name, const struct azekura_pool_options *options,
		      azekura_pool **pool);

/*
 * Closes a pool handle. The session ends with the last handle that was opened through it. Gives 0.
 */
int azekura_pool_close(azekura_pool *pool);

struct azekura_pool_info {
	char name[256];
	char id[40];          /* 32 hex digits */
	uint32_t engines;     /* engine processes, counted from 0 */
	uint32_t targets;     /* stores over which objects are spread */
	uint32_t map_version; /* grows with each change of the pool */
	uint32_t unused;
	uint64_t reserved[8];
};

/* What is known of the pool here; asks no engine. */
int azekura_pool_info(azekura_pool *pool, struct azekura_pool_info *info);

struct azekura_space {
	uint64_t total_bytes;     /* size of the disks below, each counted once */
	uint64_t available_bytes; /* free for ordinary users; used is the difference */
	uint64_t objects;         /* files and directories, about */
	uint64_t reserved[5];
};

/* Space of the pool, asked from all targets. */
int azekura_pool_space(azekura_pool *pool, struct azekura_space *space);

struct azekura_engine_info {
	uint32_t engine;
	uint32_t targets;  /* its targets */
	uint32_t pid;      /* on its own host */
	uint32_t stopping; /* 1 while it drains before its end */
	uint64_t uptime_s;
	uint64_t sessions;    /* clients that it knows */
	uint64_t connections;
	uint64_t requests;      /* since its start, as the two that follow */
	uint64_t read_bytes;    /* read by clients */
	uint64_t written_bytes; /* written by clients */
	uint64_t requests_per_s; /* over the last seconds, as the two that follow */
	uint64_t read_bytes_per_s;
	uint64_t written_bytes_per_s;
	uint64_t resident_bytes; /* memory of the process */
	uint64_t reserved[8];
};

/* What an engine says of itself. -EINVAL: the pool has fewer engines. */
int azekura_engine_info(azekura_pool *pool, uint32_t engine, struct azekura_engine_info *info);

/* ---- containers ------------------------------------------------------------------------------- */

/* A container: one space of objects, and one file system. Each pool starts with "default". */
typedef struct azekura_container azekura_container;

/*
 * A 128-bit object id. Ids are given out once and never again. Take them as they are: compare both
 * fields, store both, and change none.
 */
typedef struct azekura_oid {
	uint64_t hi;
	uint64_t lo;
} azekura_oid;

/*
 * Object classes: over how many targets the data and keys of an object are spread; never more than
 * the pool has.
 */
#define AZEKURA_CLASS_DEFAULT 0 /* what the container (or the release) has as its default */
#define AZEKURA_S1 1
#define AZEKURA_S2 2
#define AZEKURA_S4 4
#define AZEKURA_S8 8
#define AZEKURA_S16 16
#define AZEKURA_S32 32
#define AZEKURA_SX 65535 /* all targets */

#define AZEKURA_CHUNK_BYTES_MIN 4096u
#define AZEKURA_CHUNK_BYTES_MAX 67108864u
#define AZEKURA_CHUNK_BYTES_DEFAULT 1048576u

struct azekura_container_options {
	int file_class;      /* class of new files and objects */
	int directory_class; /* class of new directories */
	uint32_t chunk_bytes; /* how much of a file lies on one target before the next one's turn */
	uint32_t unused;      /* 0 */
	uint64_t reserved[6]; /* 0 */
};
/* 0 for each: as it is, or (for a new container) SX, SX and 1 MiB. */
#define AZEKURA_CONTAINER_OPTIONS_INIT { 0, 0, 0, 0, { 0, 0, 0, 0, 0, 0 } }

struct azekura_container_info {
	char name[256];
	azekura_oid root; /* the root directory */
	uint32_t id;
	int file_class;
	int directory_class;
	uint32_t chunk_bytes;
	uint64_t reserved[6];
};

/*
 * Makes a container. Names have up to 63 letters, digits, '_', '-' and '.', a letter or digit first.
 * `options` may be NULL. Errors: -EEXIST; -EINVAL for the name, a class or the chunk size; -ENFILE
 * the pool has as many as it can have.
 */
int azekura_container_create(azekura_pool *pool, const char *name,
			     const struct azekura_container_options *options);

/* Changes defaults of a container; files that exist keep theirs. Errors: -ENOENT, -EINVAL. */
int azekura_container_change(azekura_pool *pool, const char *name,
			     const struct azekura_container_options *options);

/*
 * Removes a container with all files and objects in it. Space comes back in the background of the
 * engines. What is open in it gives -ESTALE or -ENOENT from then on. Errors: -ENOENT.
 */
int azekura_container_destroy(azekura_pool *pool, const char *name);

/*
 * The containers of a pool, in no order. Fills up to `capacity` entries and gives how many there
 * are: if that is more than `capacity`, ask again with more room. `entries` may be NULL if `capacity`
 * is 0.
 */
ssize_t azekura_container_list(azekura_pool *pool, struct azekura_container_info *entries,
			       size_t capacity);

/* Ask the engines for everything: names are otherwise believed for up to a second. */
#define AZEKURA_NO_CACHE 1u
/* Every permission is granted; new files belong to the user of the handle nevertheless. */
#define AZEKURA_NO_PERMISSION_CHECKS 2u

/*
 * Opens a container for its files and objects, as the user that the process has at that moment
 * (effective user and group, supplementary groups). `flags`: 0 or some of the two above. Gives a
 * handle to be closed with azekura_container_close(). Errors: -ENOENT.
 */
int azekura_container_open(azekura_pool *pool, const char *name, uint32_t flags,
			   azekura_container **container);

/*
 * The same as another user, for servers: permissions are checked in the library, and who has the
 * secret of a pool is trusted with the identities of its users. `groups`: the `group_count`
 * supplementary groups; NULL if there are none.
 */
int azekura_container_open_as(azekura_pool *pool, const char *name, uint32_t flags, uid_t uid,
			      gid_t gid, const gid_t *groups, size_t group_count,
			      azekura_container **container);

/* The container as it was when it was opened; asks no engine. */
int azekura_container_info(azekura_container *container, struct azekura_container_info *info);

/* Makes everything that was answered in the whole pool durable, as syncfs(2). */
int azekura_container_sync(azekura_container *container);

/* Closes a container handle. Gives 0. */
int azekura_container_close(azekura_container *container);

/* ---- objects ---------------------------------------------------------------------------------- */

/*
 * An object is a table of values under two keys (dkey, akey) and, beside it, one array of bytes.
 * All values of one dkey live on one target; different dkeys are spread over the targets of the
 * object's class, as are the chunks of the array. There is no more to an object than that: it comes
 * into being with its first value or byte, one that has none reads as empty, and nobody checks
 * permissions on it.
 */
typedef struct azekura_object azekura_object;

#define AZEKURA_TAG_MAX 67108863u /* 26 bits */
#define AZEKURA_KEY_BYTES_MAX 1024
#define AZEKURA_VALUE_BYTES_MAX 131072
#define AZEKURA_BATCH_MAX 256

/*
 * Draws a new object id and opens it. `object_class`: an object class. `chunk_bytes`: chunk size of
 * the array, a power of two from AZEKURA_CHUNK_BYTES_MIN to _MAX; 0 is 1 MiB. `tag`: a number of the
 * caller's own, up to AZEKURA_TAG_MAX. All three become part of the id. Gives a handle to be closed
 * with azekura_object_close().
 */
int azekura_object_create(azekura_container *container, int object_class, uint32_t chunk_bytes,
			  uint32_t tag, azekura_object **object);

/*
 * Opens an object by an id that azekura_object_create() has given, in whatever process or year.
 * Asks no engine, and does not tell whether anything is in the object. -EINVAL: the id is that of a
 * file, or of another container or pool.
 */
int azekura_object_open(azekura_container *container, azekura_oid oid, azekura_object **object);

struct azekura_object_info {
	azekura_oid oid;
	int object_class;
	uint32_t shards; /* over how many targets of this pool it is spread */
	uint32_t chunk_bytes;
	uint32_t tag;
	uint64_t reserved[4];
};

/* What the id says; asks no engine. */
int azekura_object_info(azekura_object *object, struct azekura_object_info *info);

/* Makes all answered changes of the object durable, values and array. */
int azekura_object_sync(azekura_object *object);

/* Removes all values, arrays of records, and the array. Not atomic. 0 also if there were none. */
int azekura_object_remove(azekura_object *object);

/* Closes an object handle. Gives 0. */
int azekura_object_close(azekura_object *object);

#define AZEKURA_OID_TEXT_BYTES 34 /* with the zero byte */

/* Writes an id as text, AZEKURA_OID_TEXT_BYTES long. -ERANGE: `capacity` bytes are too few. */
int azekura_oid_format(azekura_oid oid, char *text, size_t capacity);

/* Reads an id from text. -EINVAL: it is none. */
int azekura_oid_parse(const char *text, azekura_oid *oid);

/* -- values. Keys are 1 to AZEKURA_KEY_BYTES_MAX bytes, values 0 to AZEKURA_VALUE_BYTES_MAX. -- */

/* What must hold for a change; if it does not, nothing is changed. */
#define AZEKURA_ALWAYS 0
#define AZEKURA_MUST_NOT_EXIST 1 /* else -EEXIST */
#define AZEKURA_MUST_EXIST 2     /* else -ENOENT */
#define AZEKURA_MUST_EQUAL 4     /* only in azekura_kv_update() */

/*
 * Gets a value into `value`, which has room for `capacity` bytes, and gives its length. With
 * `capacity` 0 (and any pointer) only the length. -ENOENT: there is no value; -ERANGE: too little
 * room, nothing was stored.
 */
ssize_t azekura_kv_get(azekura_object *object, const void *dkey, size_t dkey_bytes, const void *akey,
		       size_t akey_bytes, void *value, size_t capacity);

/*
 * Sets a value, in one atomic step with its condition (AZEKURA_ALWAYS, _MUST_NOT_EXIST or
 * _MUST_EXIST). Errors: -EEXIST, -ENOENT; -E2BIG the value is too long; -EINVAL a key is.
 */
int azekura_kv_put(azekura_object *object, const void *dkey, size_t dkey_bytes, const void *akey,
		   size_t akey_bytes, const void *value, size_t value_bytes, int condition);

/*
 * Sets a value if the present one is `expected`, in one atomic step (compare and swap).
 * -ECANCELED: another value is there, or none.
 */
int azekura_kv_replace(azekura_object *object, const void *dkey, size_t dkey_bytes, const void *akey,
		       size_t akey_bytes, const void *expected, size_t expected_bytes,
		       const void *value, size_t value_bytes);

/*
 * Removes a value. `condition`: AZEKURA_ALWAYS (0 also if there is none) or AZEKURA_MUST_EXIST
 * (-ENOENT if there is none).
 */
int azekura_kv_remove(azekura_object *object, const void *dkey, size_t dkey_bytes, const void *akey,
		      size_t akey_bytes, int condition);

/* Removes all values and arrays of records under a dkey. 0 also if there are none. */
int azekura_kv_remove_dkey(azekura_object *object, const void *dkey, size_t dkey_bytes);

/* One change of a batch. */
struct azekura_kv_update {
	const void *dkey;
	size_t dkey_bytes;
	const void *akey;
	size_t akey_bytes;
	const void *value; /* the new value */
	size_t value_bytes;
	const void *expected; /* for AZEKURA_MUST_EQUAL */
	size_t expected_bytes;
	int condition; /* AZEKURA_ALWAYS, _MUST_NOT_EXIST, _MUST_EXIST or _MUST_EQUAL */
	int remove;    /* 1: remove the value; `value` does not count */
};

/*
 * Up to AZEKURA_BATCH_MAX changes in one atomic step: all of them, or none if a condition fails.
 * The changes must be on one target: those under one dkey always are, and all of an object of class
 * AZEKURA_S1. Errors: -ECANCELED a condition failed; -EXDEV several targets; -E2BIG too many changes,
 * a value is too long, or all together are larger than 512 KiB.
 */
int azekura_kv_update(azekura_object *object, const struct azekura_kv_update *updates,
		      size_t update_count);

/* -- arrays of records -- */

/*
 * Under an akey there can be an array of records in place of a value: records of one size that are read
 * and written in ranges, all on the target of the dkey. Use an akey for one or the other.
 */
struct azekura_value_keys {
	const void *dkey;
	size_t dkey_bytes;
	const void *akey;
	size_t akey_bytes; /* at most 1016 */
};

struct azekura_records_info {
	uint64_t record_bytes;
	uint64_t records; /* up to the last one that was written, with all holes before it */
};

/*
 * Writes records from the one with this index on. The first write makes the array and says how large its
 * records are. -EINVAL: they have another size, or a value stands under the keys; -EFBIG.
 */
int azekura_records_write(azekura_object *object, const struct azekura_value_keys *keys,
			  uint64_t record_bytes, uint64_t index, const void *data, size_t records);

/* Reads records; those that nobody has written are zeros. -ENOENT: no such array; -EINVAL: another size. */
int azekura_records_read(azekura_object *object, const struct azekura_value_keys *keys,
			 uint64_t record_bytes, uint64_t index, void *buffer, size_t records);

/* What an array is like. -ENOENT: there is none. */
int azekura_records_info(azekura_object *object, const struct azekura_value_keys *keys,
			 struct azekura_records_info *info);

/*
 * The next records that are there at or after `from`: 1, the first of them and how many; or 0. They are
 * told in the steps in which the target keeps data, so some may be zeros that nobody has written.
 */
int azekura_records_next(azekura_object *object, const struct azekura_value_keys *keys, uint64_t from,
			 uint64_t *index, uint64_t *records);

/* Removes an array. 0 also if there is none. */
int azekura_records_remove(azekura_object *object, const struct azekura_value_keys *keys);

/* A listing of keys, used by one thread at a time. */
typedef struct azekura_keys azekura_keys;

/*
 * Begins a listing of the dkeys, or of the akeys under a dkey. Keys that are there all the time are
 * listed once; those that come or go meanwhile may be listed or not. akeys come in byte order, those
 * of arrays of records before the others; dkeys in byte order on each target, target by target. Gives a handle to be closed with
 * azekura_keys_close().
 */
int azekura_list_dkeys(azekura_object *object, azekura_keys **keys);
int azekura_list_akeys(azekura_object *object, const void *dkey, size_t dkey_bytes,
		       azekura_keys **keys);

/*
 * The next key: 1, and *key points to its *key_bytes bytes (not ended by a zero byte), which are the
 * library's and good until the next call on this listing; 0 at the end. -EBUSY: another thread is
 * using the listing.
 */
int azekura_keys_next(azekura_keys *keys, const void **key, size_t *key_bytes);

/* Ends a listing. Gives 0. */
int azekura_keys_close(azekura_keys *keys);

/* -- the array: bytes at offsets. No chunk of it is cached here. -- */

/*
 * Reads `bytes` bytes at `offset` and gives how many there were before the end of the array; holes
 * read as zeros. At the end and beyond it gives 0.
 */
ssize_t azekura_array_read(azekura_object *object, void *buffer, size_t bytes, uint64_t offset);

/*
 * Writes all of `data` at `offset`; the array grows as needed. After a failure any part may have been
 * written. -EFBIG: beyond 2^63 bytes.
 */
int azekura_array_write(azekura_object *object, const void *data, size_t bytes, uint64_t offset);

/* Length of the array: the end of its last byte, 0 if it has none. */
int64_t azekura_array_size(azekura_object *object);

/* Cuts the array to `size` bytes, or grows it with zeros. Not atomic where several targets are cut. */
int azekura_array_truncate(azekura_object *object, uint64_t size);

/* Makes a hole: the range reads as zeros and takes no space; the length stays. */
int azekura_array_punch(azekura_object *object, uint64_t offset, uint64_t bytes);

/* Removes the array and leaves the values. */
int azekura_array_remove(azekura_object *object);

/* ---- files ------------------------------------------------------------------------------------ */

/*
 * The file system of a container. Paths begin at its root, with or without a leading '/'. Functions
 * with the name of a system call do what that call does and give its errors (see its manual page);
 * what differs is said here. Common ones: -ENOENT, -ENOTDIR, -EISDIR, -EEXIST, -EACCES, -EPERM,
 * -ELOOP, -ENAMETOOLONG (255 bytes a name, 4095 a path), -EBADF (not open for this), -EFBIG, and
 * -ESTALE (the file of a handle is gone). Modes are taken as they are given: the process's umask
 * plays no part.
 */

/* An open file or directory. It has no file position: every read and write names its offset. */
typedef struct azekura_file azekura_file;

/*
 * Opens a file. `flags`: the O_ constants of <fcntl.h>: O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL,
 * O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_TMPFILE, O_SYNC, O_DSYNC; O_CLOEXEC, O_NONBLOCK,
 * O_NOATIME, O_NOCTTY and O_DIRECT are accepted and change nothing; others are -EINVAL. `mode`:
 * permission bits of a new file. A directory may be opened with O_RDONLY, to be used with
 * azekura_fstat(), azekura_fsync() and the like. Gives a handle to be closed with azekura_close().
 * -ENXIO: a pipe, socket or device, which only a kernel can open.
 */
int azekura_open(azekura_container *container, const char *path, int flags, mode_t mode,
		 azekura_file **file);

/*
 * Closes a file and gives its locks back. The handle is gone also after an error, which says that
 * something written through it did not arrive, or that the locks could not be given back now (they
 * end with the session). Only azekura_fsync() makes data durable.
 */
int azekura_close(azekura_file *file);

/* Reads at an offset; gives fewer bytes than asked for only at the end of the file, 0 behind it. */
ssize_t azekura_pread(azekura_file *file, void *buffer, size_t bytes, uint64_t offset);

/*
 * Writes at an offset (with O_APPEND: at the end, wherever `offset` is) and gives how many bytes were
 * written: all, unless an error struck after some. What was answered is seen by every later read of
 * any client.
 */
ssize_t azekura_pwrite(azekura_file *file, const void *data, size_t bytes, uint64_t offset);

/* The same with up to 1024 pieces. Up to 4 MiB in all travel as one. */
ssize_t azekura_preadv(azekura_file *file, const struct iovec *pieces, int piece_count,
		       uint64_t offset);
ssize_t azekura_pwritev(azekura_file *file, const struct iovec *pieces, int piece_count,
			uint64_t offset);

/*
 * Writes all of `data` at the end of the file and gives the offset that it went to. Up to 4 MiB go in
 * one piece, which no append of any other client is mixed with. Any file that is open for writing
 * will do; O_APPEND is not needed.
 */
int64_t azekura_append(azekura_file *file, const void *data, size_t bytes);

/* Makes data and attributes of a file, or the entries of a directory, survive a crash of machines. */
int azekura_fsync(azekura_file *file);

/* The length in bytes is set; what is new reads as zeros. */
int azekura_ftruncate(azekura_file *file, uint64_t size);
int azekura_truncate(azekura_container *container, const char *path, uint64_t size);

/*
 * fallocate(2). `mode`: 0, or of <linux/falloc.h> FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE (also
 * with KEEP_SIZE), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE. -EOPNOTSUPP: another one.
 */
int azekura_fallocate(azekura_file *file, int mode, uint64_t offset, uint64_t bytes);

/*
 * The offset of the next data (hole) at or behind `from`, as lseek(2) with SEEK_DATA (SEEK_HOLE).
 * The end of the file counts as a hole. -ENXIO: there is none.
 */
int64_t azekura_seek_data(azekura_file *file, uint64_t from);
int64_t azekura_seek_hole(azekura_file *file, uint64_t from);

/*
 * Copies within one pool handle, up to 256 MiB a call, and gives how many bytes were copied: 0 at the
 * end of the source. -EINVAL: the ranges overlap in one file; -EXDEV: different pool handles.
 */
int64_t azekura_copy_range(azekura_file *from, uint64_t from_offset, azekura_file *to,
			   uint64_t to_offset, uint64_t bytes);

/* -- attributes -- */

struct azekura_stat {
	uint64_t ino;
	uint64_t size;       /* length in bytes; of a symlink that of its text */
	uint64_t blocks_512; /* storage in use, in units of 512 bytes */
	uint64_t rdev;       /* device number of a device node */
	azekura_oid oid;     /* the object that the file is */
	uint32_t mode;       /* type (S_IFMT) and permission bits */
	uint32_t nlink;
	uint32_t uid;
	uint32_t gid;
	uint32_t chunk_bytes; /* of a directory: what new files in it get */
	int object_class;
	struct timespec atime; /* of birth, or as it was set: reading does not change it */
	struct timespec mtime;
	struct timespec ctime;
	struct timespec btime; /* birth */
	uint64_t reserved[4];
};

/* lstat does not follow a symlink at the end of the path. */
int azekura_stat(azekura_container *container, const char *path, struct azekura_stat *stat);
int azekura_lstat(azekura_container *container, const char *path, struct azekura_stat *stat);
int azekura_fstat(azekura_file *file, struct azekura_stat *stat);

/* Sets permission bits (mode & 07777). */
int azekura_chmod(azekura_container *container, const char *path, mode_t mode);
int azekura_fchmod(azekura_file *file, mode_t mode);

/* Sets owner and group; (uid_t)-1 and (gid_t)-1 leave theirs. lchown does not follow a symlink. */
int azekura_chown(azekura_container *container, const char *path, uid_t uid, gid_t gid);
int azekura_lchown(azekura_container *container, const char *path, uid_t uid, gid_t gid);
int azekura_fchown(azekura_file *file, uid_t uid, gid_t gid);

/*
 * Sets times of last access times[0] and last change times[1]; UTIME_NOW and UTIME_OMIT of
 * <sys/stat.h> count in tv_nsec, and NULL is now (by the engine's clock) for both. lutimens does not
 * follow a symlink.
 */
int azekura_utimens(azekura_container *container, const char *path, const struct timespec times[2]);
int azekura_lutimens(azekura_container *container, const char *path, const struct timespec times[2]);
int azekura_futimens(azekura_file *file, const struct timespec times[2]);

/* Whether the user of the handle may: F_OK, or some of R_OK, W_OK, X_OK of <unistd.h>. 0 or -EACCES. */
int azekura_access(azekura_container *container, const char *path, int mode);

struct azekura_statfs {
	uint64_t total_bytes;     /* of the pool: containers share it */
	uint64_t available_bytes; /* free for ordinary users */
	uint64_t objects;         /* files and directories of the pool, about */
	uint64_t fsid;            /* differs between containers */
	uint32_t name_bytes_max;
	uint32_t unused;
	uint64_t reserved[4];
};

/* Space, asked from all targets. */
int azekura_statfs(azekura_container *container, struct azekura_statfs *statfs);

/* -- names -- */

int azekura_mkdir(azekura_container *container, const char *path, mode_t mode);
/* mkdir -p: those above it that are missing are made too; 0 if the directory is there already. */
int azekura_mkdirs(azekura_container *container, const char *path, mode_t mode);
int azekura_rmdir(azekura_container *container, const char *path);
int azekura_unlink(azekura_container *container, const char *path);
/* rm -r: a directory with all below it, or a file. After an error a part is gone. */
int azekura_remove_tree(azekura_container *container, const char *path);

#define AZEKURA_RENAME_NOREPLACE 1u /* -EEXIST if the new name is there */
#define AZEKURA_RENAME_EXCHANGE 2u  /* both must be there, and change places */

/* rename(2), atomic also where it replaces. `flags`: 0 or one of the two above. */
int azekura_rename(azekura_container *container, const char *from, const char *to, uint32_t flags);

/* A second name `to` for the file `from`; a symlink at the end of `from` is not followed. */
int azekura_link(azekura_container *container, const char *from, const char *to);
/* A name for an open file, such as one that was made with O_TMPFILE. -ENOENT: it was unlinked. */
int azekura_flink(azekura_file *file, const char *to);
/* A symlink at `path` with this text. */
int azekura_symlink(azekura_container *container, const char *text, const char *path);
/*
 * The text of a symlink: gives its length, as azekura_kv_get() does (`capacity` 0 asks for the length
 * alone, -ERANGE is too little room). A zero byte is put behind it if there is room.
 */
ssize_t azekura_readlink(azekura_container *container, const char *path, char *buffer,
			 size_t capacity);
/* A file, pipe, socket or device node (type S_IFMT in `mode`; `device` is its dev_t), not opened. */
int azekura_mknod(azekura_container *container, const char *path, mode_t mode, uint64_t device);

/* -- directories -- */

/* A listing of a directory, used by one thread at a time. */
typedef struct azekura_dir azekura_dir;

struct azekura_dirent {
	uint64_t ino;
	uint64_t cookie; /* azekura_seekdir() goes on behind this entry */
	uint32_t mode;   /* the type alone: S_IFREG, S_IFDIR, .. */
	uint32_t name_bytes;
	char name[256];  /* ended by a zero byte */
};

/* Begins a listing. Gives a handle to be closed with azekura_closedir(). */
int azekura_opendir(azekura_container *container, const char *path, azekura_dir **dir);

/*
 * The next entry: 1, or 0 at the end. "." and ".." are not listed. With a `stat` (may be NULL) also
 * the attributes of the entry, fetched for many entries at a time. Entries that are there all the time
 * are listed once; those that come or go meanwhile may be listed or not.
 */
int azekura_readdir(azekura_dir *dir, struct azekura_dirent *entry, struct azekura_stat *stat);

/*
 * Where the listing stands: the cookie of the last entry. Cookies stay good for ever, in any handle
 * for that directory and any process. 0 is the start.
 */
int64_t azekura_telldir(azekura_dir *dir);
int azekura_seekdir(azekura_dir *dir, uint64_t cookie);

/* Ends a listing. Gives 0. */
int azekura_closedir(azekura_dir *dir);

/* -- extended attributes -- */

/*
 * As getxattr(2) and the like, symlinks at the end of a path are followed. Getting and listing give
 * the length, with `capacity` 0 only that; -ERANGE is too little room, -ENODATA no such attribute.
 * A list is names, each ended by a zero byte. `flags`: 0, XATTR_CREATE or XATTR_REPLACE of
 * <sys/xattr.h>. Values have up to 65536 bytes (-E2BIG). user.azekura.class ("S4") and
 * user.azekura.chunk_size ("4194304") show and set how a file is spread, as long as it is empty and
 * not open (-EBUSY), or what new files in a directory get.
 */
ssize_t azekura_getxattr(azekura_container *container, const char *path, const char *name,
			 void *value, size_t capacity);
ssize_t azekura_fgetxattr(azekura_file *file, const char *name, void *value, size_t capacity);
int azekura_setxattr(azekura_container *container, const char *path, const char *name,
		     const void *value, size_t bytes, int flags);
int azekura_fsetxattr(azekura_file *file, const char *name, const void *value, size_t bytes,
		      int flags);
ssize_t azekura_listxattr(azekura_container *container, const char *path, char *names,
			  size_t capacity);
ssize_t azekura_flistxattr(azekura_file *file, char *names, size_t capacity);
int azekura_removexattr(azekura_container *container, const char *path, const char *name);
int azekura_fremovexattr(azekura_file *file, const char *name);

/* -- locks -- */

/*
 * Advisory locks that hold between all clients of the pool: against fcntl(2) locks (azekura_lock) and
 * flock(2) (azekura_lock_file) on mounts too. The owner of a lock is the file handle: two handles of
 * one program exclude each other, all threads that use one handle are one owner, closing the handle
 * gives its locks back, and a forked child has none of them. They also end when the client was cut
 * off from the engine for longer than its lease (30 s over a network, 1 s on one host).
 */
#define AZEKURA_LOCK_NONE 0 /* gives back */
#define AZEKURA_LOCK_SHARED 1
#define AZEKURA_LOCK_EXCLUSIVE 2

/*
 * Locks `bytes` bytes from `start`; 0 bytes reach to the end of the file, however long it grows. What
 * the handle had in that range is replaced. `wait_ms`: 0 does not wait; a positive number waits for
 * so many ms, rounded up to half a second; -1 waits as long as it takes. -EAGAIN: another owner has
 * it; -EDEADLK: waiting would never end; -EBADF: not open for reading (shared) or writing
 * (exclusive); -ENOLCK: the engine has as many as it can have.
 */
int azekura_lock(azekura_file *file, int mode, uint64_t start, uint64_t bytes, int wait_ms);

/* The same for the file as a whole, and apart from azekura_lock(). Any open file will do. */
int azekura_lock_file(azekura_file *file, int mode, int wait_ms);

struct azekura_lock_info {
	uint64_t start;
	uint64_t bytes; /* 0: to the end of the file */
	int mode;       /* AZEKURA_LOCK_SHARED or _EXCLUSIVE */
	uint32_t pid;   /* of the owner, on its own host */
};

/* Whether a lock of another owner is in the way of this one: 1, and which, or 0. */
int azekura_lock_test(azekura_file *file, int mode, uint64_t start, uint64_t bytes,
		      struct azekura_lock_info *info);

#ifdef __cplusplus
}
#endif

#endif
