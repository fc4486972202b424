/* What is checked is said in one line each; what all parts of the program work in. */
#ifndef CHECK_H
#define CHECK_H

#include "client.h"

/* `good`, or what is written instead. */
void check(bool good, const char *format, ...);
/* A status as it should be: one of the `count` in `wanted`. */
void check_status(const char *what, int status, const int *wanted, unsigned count);
void check_mount(const char *what, int status, int wanted);
void check_lock(const char *what, int status, int wanted);

#define ONE_OF(what, call, ...)                                                                   \
	do {                                                                                      \
		const int wanted_[] = {__VA_ARGS__};                                              \
		check_status(what, call, wanted_, sizeof wanted_ / sizeof *wanted_);              \
	} while (0)
#define WANT(what, wanted, call) ONE_OF(what, call, wanted)
/* What was just before a change is always known of one object's own attributes; of a directory, and of a
   file's data, it may be left out where the change goes to several targets. If it is said it must be right. */
extern bool before_is_certain;

/* A call that succeeds and changes `object`: its weak cache consistency data say what was there before
   and what is there now. `got` stays what the call left. What was before is known if it is from another
   tick of the server's clock. */
#define CHANGES(what, object, call)                                                               \
	do {                                                                                      \
		await_tick();                                                                     \
		fattr3 before_ = attributes_of(object);                                           \
		WANT(what, NFS3_OK, call);                                                        \
		check_wcc(what, object, &before_, &got.wcc);                                      \
	} while (0)
/* A call that fails at `object`: the reply has its attributes, and they have not changed. */
#define REFUSED(what, object, call, ...)                                                          \
	do {                                                                                      \
		fattr3 before_ = attributes_of(object);                                           \
		ONE_OF(what, call, __VA_ARGS__);                                                  \
		check_unchanged(what, &before_, &got.wcc.after);                                  \
	} while (0)

/* Waits until the kernel's clock, by which changes are stamped, has gone on. */
void await_tick(void);
void check_wcc(const char *what, const struct handle *object, const fattr3 *before,
	       const wcc_data *wcc);
void check_unchanged(const char *what, const fattr3 *before, const post_op_attr *after);
/* The reply has the attributes that GETATTR gives. */
void check_attributes(const char *what, const struct handle *object, const post_op_attr *given);

fattr3 attributes_of(const struct handle *object);
/* The handle of a name, which must be there. */
struct handle find(const struct handle *dir, const char *name);
/* Makes a file with bytes in it, which must succeed. */
struct handle make_file(const struct handle *dir, const char *name, const char *text);
struct handle make_dir(const struct handle *dir, const char *name);
/* A handle whose object has just been removed. */
struct handle stale(const struct handle *dir, bool directory);
struct handle bad_handle(void);
sattr3 mode_of(uint32_t mode);
bool same_time(const nfstime3 *one, const nfstime3 *two);
bool same_handle(const struct handle *one, const struct handle *two);
bool earlier(const nfstime3 *one, const nfstime3 *two);

struct session {
	const char *path; /* of the export */
	uint32_t uid, gid;
	uint32_t nobody;  /* whom the export takes root for; 0: for root */
	bool superuser;  /* the caller is root, and the export takes it for root */
	bool locks;
	struct handle root, dir; /* of the export; the directory to work in, the caller's own */
};
extern struct session session;
/* The caller again, after `be` somebody else. */
void be_caller(void);

void check_mounting(void);
void check_attribute_calls(void);
void check_file_systems(void);
void check_making(void);
void check_moving(void);
void check_removing(void);
void check_data(void);
void check_listing(void);
void check_permissions(void);
void check_locks(void);

#endif
