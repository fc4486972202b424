/* Saying what was checked, and what several parts need to check it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "wire.h"

struct session session;
unsigned checks, failed;

static void
say(bool good, const char *text)
{
	checks++;
	failed += !good;
	printf("%s: %s\n", good ? "ok" : "FAILED", text);
}

void
check(bool good, const char *format, ...)
{
	char text[400];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	say(good, text);
}

static void
check_named(const char *what, bool good, const char *is, const char *wanted)
{
	if (good)
		check(true, "%s: %s", what, is);
	else
		check(false, "%s: %s %s, not %s", what, is, got.error, wanted);
}

static const char *
nfs_name(int status)
{
	return status == RPC_REFUSED ? "refused by RPC" : nfsstat3_to_str(status);
}

void
check_status(const char *what, int status, const int *wanted, unsigned count)
{
	char text[300] = "";
	bool good = false;

	for (unsigned each = 0; each < count; each++) {
		size_t used = strlen(text);

		good = good || status == wanted[each];
		snprintf(text + used, sizeof text - used, "%s%s", each > 0 ? " or " : "",
			 nfs_name(wanted[each]));
	}
	check_named(what, good, nfs_name(status), text);
}

void
check_mount(const char *what, int status, int wanted)
{
	check_named(what, status == wanted,
		    status == RPC_REFUSED ? "refused by RPC" : mountstat3_to_str(status),
		    mountstat3_to_str(wanted));
}

void
check_lock(const char *what, int status, int wanted)
{
	check_named(what, status == wanted,
		    status == RPC_REFUSED ? "refused by RPC" : nlmstat4_to_str(status),
		    nlmstat4_to_str(wanted));
	if (status != RPC_REFUSED)
		check(got.cookie_is_ours, "%s: the reply has the call's cookie", what);
}

bool
same_time(const nfstime3 *one, const nfstime3 *two)
{
	return one->seconds == two->seconds && one->nseconds == two->nseconds;
}

bool
earlier(const nfstime3 *one, const nfstime3 *two)
{
	return one->seconds < two->seconds ||
	       (one->seconds == two->seconds && one->nseconds < two->nseconds);
}

static bool
same_attributes(const fattr3 *one, const fattr3 *two)
{
	return one->type == two->type && one->mode == two->mode && one->nlink == two->nlink &&
	       one->uid == two->uid && one->gid == two->gid && one->size == two->size &&
	       one->fsid == two->fsid && one->fileid == two->fileid &&
	       same_time(&one->mtime, &two->mtime) && same_time(&one->ctime, &two->ctime);
}

bool
same_handle(const struct handle *one, const struct handle *two)
{
	return one->length == two->length && memcmp(one->bytes, two->bytes, one->length) == 0;
}

/* GETATTR, with `got` left as it is. */
static int
look(const struct handle *object, fattr3 *attributes)
{
	struct reply before = got;
	int status;

	memset(&got, 0, sizeof got);
	status = getattr(object);
	*attributes = got.object.post_op_attr_u.attributes;
	forget();
	got = before;
	return status;
}

fattr3
attributes_of(const struct handle *object)
{
	fattr3 attributes;
	int status = look(object, &attributes);

	if (status != NFS3_OK)
		check_status("GETATTR of what must be there", status, (const int[]){NFS3_OK}, 1);
	return attributes;
}

bool before_is_certain;

void
await_tick(void)
{
	struct timespec tick = {.tv_nsec = 20 * 1000 * 1000};

	nanosleep(&tick, NULL);
}

void
check_wcc(const char *what, const struct handle *object, const fattr3 *before, const wcc_data *wcc)
{
	const wcc_attr *was = &wcc->before.pre_op_attr_u.attributes;
	fattr3 now;

	if (wcc->before.attributes_follow || before_is_certain)
		check(wcc->before.attributes_follow && was->size == before->size &&
			      same_time(&was->mtime, &before->mtime) &&
			      same_time(&was->ctime, &before->ctime),
		      "%s: weak cache consistency: what was before", what);
	if (look(object, &now) == NFS3_OK)
		check(wcc->after.attributes_follow &&
			      same_attributes(&wcc->after.post_op_attr_u.attributes, &now),
		      "%s: weak cache consistency: what is after", what);
}

void
check_unchanged(const char *what, const fattr3 *before, const post_op_attr *after)
{
	check(after->attributes_follow && same_attributes(before, &after->post_op_attr_u.attributes),
	      "%s: weak cache consistency of a failure", what);
}

void
check_attributes(const char *what, const struct handle *object, const post_op_attr *given)
{
	post_op_attr mine = *given;
	fattr3 now = attributes_of(object);

	check(mine.attributes_follow && same_attributes(&mine.post_op_attr_u.attributes, &now),
	      "%s: attributes as GETATTR has them", what);
}

sattr3
mode_of(uint32_t mode)
{
	sattr3 attributes = {.mode = {.set_it = 1}};

	attributes.mode.set_mode3_u.mode = mode;
	return attributes;
}

struct handle
find(const struct handle *dir, const char *name)
{
	if (lookup(dir, name) != NFS3_OK)
		die("'%s' is not to be found: %s", name, nfs_name(got.status));
	return got.handle;
}

struct handle
make_file(const struct handle *dir, const char *name, const char *text)
{
	struct handle file;

	if (create(dir, name, GUARDED, mode_of(0644)) != NFS3_OK)
		die("'%s' cannot be made: %s", name, nfs_name(got.status));
	file = got.has_handle ? got.handle : find(dir, name);
	if (*text != '\0' &&
	    write_at(&file, 0, text, (uint32_t)strlen(text), FILE_SYNC) != NFS3_OK)
		die("'%s' cannot be written: %s", name, nfs_name(got.status));
	return file;
}

struct handle
make_dir(const struct handle *dir, const char *name)
{
	if (mkdir_in(dir, name, mode_of(0755)) != NFS3_OK)
		die("'%s' cannot be made: %s", name, nfs_name(got.status));
	return got.has_handle ? got.handle : find(dir, name);
}

struct handle
stale(const struct handle *dir, bool directory)
{
	struct handle gone = directory ? make_dir(dir, "stale") : make_file(dir, "stale", "");
	int status = directory ? rmdir_from(dir, "stale") : remove_from(dir, "stale");

	if (status != NFS3_OK)
		die("'stale' cannot be removed: %s", nfs_name(status));
	return gone;
}

struct handle
bad_handle(void)
{
	return handle_of(5, "wrong");
}

void
be_caller(void)
{
	be(session.uid, session.gid, 0, (uint32_t[]){0});
}
