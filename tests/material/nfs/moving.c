/* RENAME and LINK. */
#include <string.h>

#include "check.h"

static struct handle here, there;

static bool
is_there(const struct handle *dir, const char *name)
{
	return lookup(dir, name) == NFS3_OK;
}

static void
check_files(void)
{
	struct handle file = make_file(&here, "one", "first"), other;
	fattr3 before = attributes_of(&file), to_before;

	CHANGES("RENAME in one directory", &here, rename_to(&here, "one", &here, "two"));
	check(!is_there(&here, "one") && is_there(&here, "two") &&
		      same_handle(&got.handle, &file) &&
		      attributes_of(&file).fileid == before.fileid,
	      "RENAME: the handle stays good");
	to_before = attributes_of(&there);
	CHANGES("RENAME to another directory", &here, rename_to(&here, "two", &there, "three"));
	check_wcc("RENAME to another directory, at its end", &there, &to_before, &got.to_wcc);
	other = make_file(&here, "one", "second");
	WANT("RENAME over a file", NFS3_OK, rename_to(&here, "one", &there, "three"));
	WANT("RENAME over a file: the one that was there", NFS3ERR_STALE, getattr(&file));
	check(is_there(&there, "three") && same_handle(&got.handle, &other),
	      "RENAME over a file: the other one is there");
	WANT("RENAME to its own name", NFS3_OK, rename_to(&there, "three", &there, "three"));
	check(is_there(&there, "three"), "RENAME to its own name: it is there");
	WANT("LINK", NFS3_OK, link_to(&other, &here, "link"));
	WANT("RENAME to another name of the same file", NFS3_OK,
	     rename_to(&here, "link", &there, "three"));
	check(is_there(&here, "link") && is_there(&there, "three"),
	      "RENAME to another name of the same file: both are there");
	WANT("REMOVE", NFS3_OK, remove_from(&here, "link"));
	WANT("REMOVE", NFS3_OK, remove_from(&there, "three"));
}

static void
check_directories(void)
{
	struct handle moved = make_dir(&here, "one"), up, inner, other;
	uint32_t links = attributes_of(&here).nlink;

	WANT("RENAME of a directory", NFS3_OK, rename_to(&here, "one", &there, "one"));
	WANT("LOOKUP of '..' in a moved directory", NFS3_OK, lookup(&moved, ".."));
	up = got.handle;
	check(attributes_of(&up).fileid == attributes_of(&there).fileid,
	      "LOOKUP of '..' in a moved directory: where it is now");
	check(attributes_of(&here).nlink == links - 1, "RENAME of a directory: one link less above");
	other = make_dir(&here, "two");
	WANT("RENAME over an empty directory", NFS3_OK, rename_to(&there, "one", &here, "two"));
	WANT("RENAME over an empty directory: the one that was there", NFS3ERR_STALE, getattr(&other));
	inner = make_dir(&moved, "inner");
	make_dir(&there, "three");
	REFUSED("RENAME over a directory with something in it", &there,
		rename_to(&there, "three", &here, "two"), NFS3ERR_NOTEMPTY, NFS3ERR_EXIST);
	REFUSED("RENAME of a directory into itself", &here, rename_to(&here, "two", &moved, "self"),
		NFS3ERR_INVAL);
	ONE_OF("RENAME of a directory further into itself", rename_to(&here, "two", &inner, "self"),
	       NFS3ERR_INVAL);
	make_file(&there, "file", "");
	ONE_OF("RENAME of a file over a directory", rename_to(&there, "file", &there, "three"),
	       NFS3ERR_ISDIR, NFS3ERR_EXIST);
	ONE_OF("RENAME of a directory over a file", rename_to(&there, "three", &there, "file"),
	       NFS3ERR_NOTDIR, NFS3ERR_EXIST);
	WANT("REMOVE", NFS3_OK, remove_from(&there, "file"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&there, "three"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&moved, "inner"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&here, "two"));
}

static void
check_rename_refusals(void)
{
	struct handle file = make_file(&here, "file", ""), gone = stale(&session.dir, true);
	struct handle bad = bad_handle();
	char name[257];
	fattr3 to_before = attributes_of(&there);

	memset(name, 'l', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	REFUSED("RENAME of a name that is not there", &here,
		rename_to(&here, "missing", &there, "name"), NFS3ERR_NOENT);
	check_unchanged("RENAME of a name that is not there, at its end", &to_before,
			&got.to_wcc.after);
	ONE_OF("RENAME of '.'", rename_to(&here, ".", &there, "name"), NFS3ERR_INVAL);
	ONE_OF("RENAME of '..'", rename_to(&here, "..", &there, "name"), NFS3ERR_INVAL);
	ONE_OF("RENAME to '.'", rename_to(&here, "file", &there, "."), NFS3ERR_INVAL, NFS3ERR_EXIST);
	ONE_OF("RENAME to '..'", rename_to(&here, "file", &there, ".."), NFS3ERR_INVAL,
	       NFS3ERR_EXIST);
	ONE_OF("RENAME to an empty name", rename_to(&here, "file", &there, ""), NFS3ERR_INVAL,
	       NFS3ERR_ACCES, NFS3ERR_NOENT);
	ONE_OF("RENAME to a name with a slash", rename_to(&here, "file", &there, "a/b"),
	       NFS3ERR_INVAL, NFS3ERR_ACCES);
	WANT("RENAME to 256 bytes", NFS3ERR_NAMETOOLONG, rename_to(&here, "file", &there, name));
	WANT("RENAME of 256 bytes", NFS3ERR_NAMETOOLONG, rename_to(&here, name, &there, "name"));
	WANT("RENAME from a file", NFS3ERR_NOTDIR, rename_to(&file, "x", &there, "name"));
	WANT("RENAME into a file", NFS3ERR_NOTDIR, rename_to(&here, "file", &file, "name"));
	WANT("RENAME from a removed directory", NFS3ERR_STALE,
	     rename_to(&gone, "file", &there, "name"));
	WANT("RENAME into a removed directory", NFS3ERR_STALE,
	     rename_to(&here, "file", &gone, "name"));
	WANT("RENAME from no handle at all", NFS3ERR_BADHANDLE,
	     rename_to(&bad, "file", &there, "name"));
	WANT("RENAME to no handle at all", NFS3ERR_BADHANDLE,
	     rename_to(&here, "file", &bad, "name"));
	WANT("REMOVE", NFS3_OK, remove_from(&here, "file"));
}

static void
check_link(void)
{
	struct handle file = make_file(&here, "file", "shared"), gone = stale(&here, false);
	struct handle gone_dir = stale(&here, true), bad = bad_handle(), dir = make_dir(&here, "dir");
	struct handle link;
	char name[257];

	memset(name, 'l', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	CHANGES("LINK", &there, link_to(&file, &there, "link"));
	check_attributes("LINK", &file, &got.object);
	check(attributes_of(&file).nlink == 2, "LINK: two links");
	check(is_there(&there, "link") && same_handle(&got.handle, &file),
	      "LINK: the same file under the same handle");
	REFUSED("LINK to a name that is there", &there, link_to(&file, &there, "link"),
		NFS3ERR_EXIST);
	check_attributes("LINK to a name that is there", &file, &got.object);
	ONE_OF("LINK to a directory", link_to(&dir, &there, "hard"), NFS3ERR_INVAL, NFS3ERR_PERM,
	       NFS3ERR_ISDIR);
	WANT("SYMLINK", NFS3_OK, symlink_in(&here, "symlink", "file"));
	link = find(&here, "symlink");
	WANT("LINK to a symlink", NFS3_OK, link_to(&link, &there, "symlink"));
	check(attributes_of(&link).nlink == 2, "LINK to a symlink: itself has two links");
	WANT("LINK in a file", NFS3ERR_NOTDIR, link_to(&file, &file, "name"));
	WANT("LINK of 256 bytes", NFS3ERR_NAMETOOLONG, link_to(&file, &there, name));
	ONE_OF("LINK of '.'", link_to(&file, &there, "."), NFS3ERR_EXIST, NFS3ERR_INVAL);
	ONE_OF("LINK of an empty name", link_to(&file, &there, ""), NFS3ERR_INVAL, NFS3ERR_ACCES,
	       NFS3ERR_NOENT, NFS3ERR_EXIST);
	ONE_OF("LINK of a name with a slash", link_to(&file, &there, "a/b"), NFS3ERR_INVAL,
	       NFS3ERR_ACCES);
	WANT("LINK to a removed file", NFS3ERR_STALE, link_to(&gone, &there, "name"));
	WANT("LINK in a removed directory", NFS3ERR_STALE, link_to(&file, &gone_dir, "name"));
	WANT("LINK to no handle at all", NFS3ERR_BADHANDLE, link_to(&bad, &there, "name"));
	WANT("LINK at no handle at all", NFS3ERR_BADHANDLE, link_to(&file, &bad, "name"));
	WANT("REMOVE of one of two names", NFS3_OK, remove_from(&here, "file"));
	check(attributes_of(&file).nlink == 1, "REMOVE of one of two names: one link");
	WANT("READ through the other name", NFS3_OK, read_at(&file, 0, 100));
	check(got.length == 6 && memcmp(got.bytes, "shared", 6) == 0,
	      "READ through the other name: what was written");
	WANT("REMOVE", NFS3_OK, remove_from(&there, "link"));
	WANT("REMOVE of the last name: the file is gone", NFS3ERR_STALE, getattr(&file));
	WANT("REMOVE", NFS3_OK, remove_from(&there, "symlink"));
	WANT("REMOVE", NFS3_OK, remove_from(&here, "symlink"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&here, "dir"));
}

void
check_moving(void)
{
	here = make_dir(&session.dir, "here");
	there = make_dir(&session.dir, "there");
	check_files();
	check_directories();
	check_rename_refusals();
	check_link();
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "here"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "there"));
}
