/* GETATTR, SETATTR, READLINK, and FSSTAT, FSINFO and PATHCONF. */
#include <string.h>

#include "check.h"

static void
check_getattr(void)
{
	struct handle file = make_file(&session.dir, "attributes", "twelve bytes");
	struct handle gone = stale(&session.dir, false), bad = bad_handle();
	struct handle dir = make_dir(&session.dir, "directory"), empty = {.length = 0};
	fattr3 is = attributes_of(&file), parent = attributes_of(&session.dir);

	check(null_call() == 0, "NULL");
	check(is.type == NF3REG && is.mode == 0644 && is.nlink == 1 && is.size == 12,
	      "GETATTR of a file: type, mode, links and size");
	check(is.uid == session.uid && is.gid == session.gid, "GETATTR: owner %u, group %u", is.uid,
	      is.gid);
	check(is.used > 0 && is.fileid != 0 && is.fsid == parent.fsid,
	      "GETATTR: space used, number, file system");
	check(is.mtime.seconds > 1600000000 && is.mtime.nseconds < 1000000000 &&
		      !earlier(&is.ctime, &is.mtime),
	      "GETATTR: times");
	is = attributes_of(&dir);
	check(is.type == NF3DIR && is.mode == 0755 && is.nlink == 2, "GETATTR of a directory");
	check(parent.nlink == 3, "GETATTR: a directory's link for each one in it");
	WANT("GETATTR of a removed file", NFS3ERR_STALE, getattr(&gone));
	gone = stale(&session.dir, true);
	WANT("GETATTR of a removed directory", NFS3ERR_STALE, getattr(&gone));
	WANT("GETATTR of no handle at all", NFS3ERR_BADHANDLE, getattr(&bad));
	WANT("GETATTR of an empty handle", NFS3ERR_BADHANDLE, getattr(&empty));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "directory"));
}

static sattr3
size_of(uint64_t size)
{
	sattr3 attributes = {.size = {.set_it = 1}};

	attributes.size.set_size3_u.size = size;
	return attributes;
}

static void
check_sizes(const struct handle *file)
{
	struct handle dir = make_dir(&session.dir, "directory");
	fattr3 before = attributes_of(file);

	CHANGES("SETATTR of a smaller size", file, setattr(file, size_of(6), NULL));
	check(attributes_of(file).size == 6, "SETATTR of a smaller size: done");
	check(!earlier(&got.wcc.after.post_op_attr_u.attributes.mtime, &before.mtime),
	      "SETATTR of a size: the time of change goes on");
	CHANGES("SETATTR of a larger size", file, setattr(file, size_of(3 << 20), NULL));
	WANT("READ of what grew", NFS3_OK, read_at(file, 4, 8));
	check(got.length == 8 && memcmp(got.bytes, "ve\0\0\0\0\0\0", 8) == 0,
	      "READ of what grew: zeros after the old end");
	CHANGES("SETATTR of size 0", file, setattr(file, size_of(0), NULL));
	check(attributes_of(file).size == 0, "SETATTR of size 0: done");
	REFUSED("SETATTR of a size beyond all", file, setattr(file, size_of(UINT64_MAX), NULL),
		NFS3ERR_FBIG, NFS3ERR_INVAL);
	REFUSED("SETATTR of a directory's size", &dir, setattr(&dir, size_of(0), NULL), NFS3ERR_INVAL,
		NFS3ERR_ISDIR);
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "directory"));
}

static void
check_times(const struct handle *file)
{
	sattr3 times = {.atime = {.set_it = SET_TO_CLIENT_TIME}, .mtime = {.set_it = SET_TO_CLIENT_TIME}};
	const nfstime3 one = {1000000000, 123456789}, two = {1100000000, 987654321};
	const nfstime3 late = {3000000000u, 1}, wrong = {5, 1000000000};
	fattr3 is;

	times.atime.set_atime_u.atime = one;
	times.mtime.set_mtime_u.mtime = two;
	CHANGES("SETATTR of both times", file, setattr(file, times, NULL));
	is = attributes_of(file);
	check(same_time(&is.atime, &one) && same_time(&is.mtime, &two),
	      "SETATTR of both times: to the nanosecond");
	times.atime.set_it = DONT_CHANGE;
	times.mtime.set_mtime_u.mtime = late;
	CHANGES("SETATTR of a time after 2038", file, setattr(file, times, NULL));
	is = attributes_of(file);
	check(same_time(&is.atime, &one) && same_time(&is.mtime, &late),
	      "SETATTR of a time after 2038: that one, and only that");
	times.mtime.set_mtime_u.mtime = wrong;
	REFUSED("SETATTR of a time with 1,000,000,000 ns", file, setattr(file, times, NULL),
		NFS3ERR_INVAL);
	times.mtime.set_it = SET_TO_SERVER_TIME;
	CHANGES("SETATTR of the server's time", file, setattr(file, times, NULL));
	is = attributes_of(file);
	check(is.mtime.seconds < late.seconds && is.mtime.seconds > two.seconds,
	      "SETATTR of the server's time: now");
}

static void
check_guard(const struct handle *file)
{
	fattr3 before = attributes_of(file), now;
	nfstime3 other = before.ctime;

	other.nseconds = other.nseconds == 0 ? 1 : other.nseconds - 1;
	REFUSED("SETATTR with another time of change", file, setattr(file, mode_of(0600), &other),
		NFS3ERR_NOT_SYNC);
	now = attributes_of(file);
	check(now.mode == before.mode, "SETATTR with another time of change: nothing changed");
	CHANGES("SETATTR with the right time of change", file,
		setattr(file, mode_of(0600), &before.ctime));
	now = attributes_of(file);
	check(now.mode == 0600 && !same_time(&now.ctime, &before.ctime),
	      "SETATTR with the right time of change: done");
	REFUSED("SETATTR with the time of change before that", file,
		setattr(file, mode_of(0640), &before.ctime), NFS3ERR_NOT_SYNC);
}

static void
check_setattr(void)
{
	struct handle file = find(&session.dir, "attributes"), gone = stale(&session.dir, false);
	struct handle bad = bad_handle();
	sattr3 owner = {.uid = {.set_it = 1}, .gid = {.set_it = 1}}, nothing = {.mode = {0}};
	fattr3 is;

	before_is_certain = true;
	CHANGES("SETATTR of the mode", &file, setattr(&file, mode_of(04751), NULL));
	check(attributes_of(&file).mode == 04751, "SETATTR of the mode: done");
	CHANGES("SETATTR of nothing", &file, setattr(&file, nothing, NULL));
	check_times(&file);
	check_sizes(&file);
	check_guard(&file);
	owner.uid.set_uid3_u.uid = session.uid + 1;
	owner.gid.set_gid3_u.gid = session.gid + 1;
	if (session.superuser) {
		CHANGES("SETATTR of owner and group", &file, setattr(&file, owner, NULL));
		is = attributes_of(&file);
		check(is.uid == session.uid + 1 && is.gid == session.gid + 1,
		      "SETATTR of owner and group: done");
		owner.uid.set_uid3_u.uid = session.uid;
		owner.gid.set_gid3_u.gid = session.gid;
		WANT("SETATTR of them back", NFS3_OK, setattr(&file, owner, NULL));
	} else {
		REFUSED("SETATTR of the owner by who is not root", &file,
			setattr(&file, owner, NULL), NFS3ERR_PERM);
	}
	WANT("SETATTR of a removed file", NFS3ERR_STALE, setattr(&gone, mode_of(0600), NULL));
	WANT("SETATTR of no handle at all", NFS3ERR_BADHANDLE, setattr(&bad, mode_of(0600), NULL));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "attributes"));
	before_is_certain = false;
}

static void
check_readlink(void)
{
	struct handle file = make_file(&session.dir, "file", ""), gone, bad = bad_handle();
	struct handle link;
	static const char *const TEXTS[] = {"file", "/absolute//path/./..", "../not there",
					    "\xff\xfe \xc3\xa9\n*", NULL};

	for (unsigned each = 0; TEXTS[each] != NULL; each++) {
		CHANGES("SYMLINK", &session.dir, symlink_in(&session.dir, "link", TEXTS[each]));
		link = find(&session.dir, "link");
		WANT("READLINK", NFS3_OK, readlink_of(&link));
		check(got.length == strlen(TEXTS[each]) &&
			      memcmp(got.bytes, TEXTS[each], got.length) == 0,
		      "READLINK: text %u as it was given", each);
		check_attributes("READLINK", &link, &got.object);
		check(attributes_of(&link).type == NF3LNK &&
			      attributes_of(&link).size == strlen(TEXTS[each]),
		      "GETATTR of a symlink: its own type and size");
		WANT("REMOVE of a symlink", NFS3_OK, remove_from(&session.dir, "link"));
	}
	WANT("READLINK of a removed symlink", NFS3ERR_STALE, readlink_of(&link));
	WANT("READLINK of a file", NFS3ERR_INVAL, readlink_of(&file));
	check_attributes("READLINK of a file", &file, &got.object);
	WANT("READLINK of a directory", NFS3ERR_INVAL, readlink_of(&session.dir));
	gone = stale(&session.dir, false);
	WANT("READLINK of a removed file", NFS3ERR_STALE, readlink_of(&gone));
	WANT("READLINK of no handle at all", NFS3ERR_BADHANDLE, readlink_of(&bad));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
}

void
check_attribute_calls(void)
{
	check_getattr();
	check_setattr();
	check_readlink();
}

static void
check_info(const struct handle *object, const char *what)
{
	FSINFO3resok info;

	check(fsinfo(object) == NFS3_OK, "FSINFO of %s", what);
	check_attributes("FSINFO", object, &got.object);
	info = got.info;
	check(info.rtmax >= BYTES_MAX && info.wtmax >= BYTES_MAX,
	      "FSINFO: READ up to %u and WRITE up to %u bytes", info.rtmax, info.wtmax);
	check(info.rtpref > 0 && info.rtpref <= info.rtmax && info.wtpref > 0 &&
		      info.wtpref <= info.wtmax && info.dtpref > 0,
	      "FSINFO: preferred sizes");
	check(info.rtmult > 0 && info.rtmax % info.rtmult == 0 && info.wtmult > 0 &&
		      info.wtmax % info.wtmult == 0,
	      "FSINFO: multiples");
	check(info.maxfilesize >= (uint64_t)1 << 50, "FSINFO: files of 2^50 bytes");
	check(info.time_delta.seconds == 0 && info.time_delta.nseconds > 0, "FSINFO: steps of time");
	check((info.properties & FSF3_LINK) && (info.properties & FSF3_SYMLINK) &&
		      (info.properties & FSF3_HOMOGENEOUS) && (info.properties & FSF3_CANSETTIME),
	      "FSINFO: links, symlinks, times, the same everywhere");
}

static void
check_space(const struct handle *object, const char *what)
{
	check(fsstat(object) == NFS3_OK, "FSSTAT of %s", what);
	check_attributes("FSSTAT", object, &got.object);
	check(got.space.tbytes > 0 && got.space.tbytes >= got.space.fbytes &&
		      got.space.fbytes >= got.space.abytes && got.space.abytes > 0,
	      "FSSTAT: bytes in all, free and available");
	check(got.space.tfiles >= got.space.ffiles && got.space.ffiles >= got.space.afiles,
	      "FSSTAT: files in all, free and available");
}

static void
check_limits(const struct handle *object, const char *what)
{
	check(pathconf_of(object) == NFS3_OK, "PATHCONF of %s", what);
	check_attributes("PATHCONF", object, &got.object);
	check(got.limits.name_max == 255 && got.limits.no_trunc,
	      "PATHCONF: names of 255 bytes, and longer ones are refused");
	check(got.limits.linkmax > 1 && got.limits.chown_restricted &&
		      got.limits.case_preserving && !got.limits.case_insensitive,
	      "PATHCONF: links, owners and case as in POSIX");
}

void
check_file_systems(void)
{
	struct handle file = make_file(&session.dir, "file", ""), gone, bad = bad_handle();

	check_info(&session.root, "the root");
	check_info(&file, "a file");
	check_space(&session.root, "the root");
	check_space(&file, "a file");
	check_limits(&session.root, "the root");
	check_limits(&file, "a file");
	gone = stale(&session.dir, true);
	WANT("FSINFO of a removed directory", NFS3ERR_STALE, fsinfo(&gone));
	WANT("FSSTAT of a removed directory", NFS3ERR_STALE, fsstat(&gone));
	WANT("PATHCONF of a removed directory", NFS3ERR_STALE, pathconf_of(&gone));
	WANT("FSINFO of no handle at all", NFS3ERR_BADHANDLE, fsinfo(&bad));
	WANT("FSSTAT of no handle at all", NFS3ERR_BADHANDLE, fsstat(&bad));
	WANT("PATHCONF of no handle at all", NFS3ERR_BADHANDLE, pathconf_of(&bad));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "file"));
}
