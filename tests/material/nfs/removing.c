/* REMOVE and RMDIR. */
#include <string.h>

#include "check.h"

static void
check_remove(void)
{
	struct handle file = make_file(&session.dir, "file", "text"), gone, bad = bad_handle();
	struct handle plain = make_file(&session.dir, "plain", ""), link;
	char name[257];

	memset(name, 'l', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	make_dir(&session.dir, "directory");
	CHANGES("REMOVE", &session.dir, remove_from(&session.dir, "file"));
	WANT("LOOKUP after REMOVE", NFS3ERR_NOENT, lookup(&session.dir, "file"));
	WANT("READ after REMOVE", NFS3ERR_STALE, read_at(&file, 0, 4));
	WANT("WRITE after REMOVE", NFS3ERR_STALE, write_at(&file, 0, "x", 1, FILE_SYNC));
	WANT("SYMLINK", NFS3_OK, symlink_in(&session.dir, "link", "plain"));
	link = find(&session.dir, "link");
	WANT("REMOVE of a symlink", NFS3_OK, remove_from(&session.dir, "link"));
	WANT("REMOVE of a symlink: it is gone", NFS3ERR_STALE, getattr(&link));
	WANT("REMOVE of a symlink: what it led to is there", NFS3_OK, getattr(&plain));
	REFUSED("REMOVE of a name that is not there", &session.dir,
		remove_from(&session.dir, "file"), NFS3ERR_NOENT);
	REFUSED("REMOVE of a directory", &session.dir, remove_from(&session.dir, "directory"),
		NFS3ERR_ISDIR, NFS3ERR_PERM);
	ONE_OF("REMOVE of '.'", remove_from(&session.dir, "."), NFS3ERR_INVAL, NFS3ERR_ISDIR,
	       NFS3ERR_PERM);
	ONE_OF("REMOVE of '..'", remove_from(&session.dir, ".."), NFS3ERR_INVAL, NFS3ERR_ISDIR,
	       NFS3ERR_PERM);
	ONE_OF("REMOVE of an empty name", remove_from(&session.dir, ""), NFS3ERR_INVAL,
	       NFS3ERR_NOENT, NFS3ERR_ACCES);
	ONE_OF("REMOVE of a name with a slash", remove_from(&session.dir, "directory/x"),
	       NFS3ERR_INVAL, NFS3ERR_NOENT, NFS3ERR_ACCES);
	WANT("REMOVE of 256 bytes", NFS3ERR_NAMETOOLONG, remove_from(&session.dir, name));
	WANT("REMOVE in a file", NFS3ERR_NOTDIR, remove_from(&plain, "name"));
	gone = stale(&session.dir, true);
	WANT("REMOVE in a removed directory", NFS3ERR_STALE, remove_from(&gone, "name"));
	WANT("REMOVE at no handle at all", NFS3ERR_BADHANDLE, remove_from(&bad, "name"));
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "plain"));
	WANT("RMDIR", NFS3_OK, rmdir_from(&session.dir, "directory"));
}

static void
check_rmdir(void)
{
	struct handle dir = make_dir(&session.dir, "directory"), bad = bad_handle(), file;
	uint32_t links = attributes_of(&session.dir).nlink;
	char name[257];

	memset(name, 'l', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	file = make_file(&dir, "file", "");
	REFUSED("RMDIR of what is not empty", &session.dir, rmdir_from(&session.dir, "directory"),
		NFS3ERR_NOTEMPTY, NFS3ERR_EXIST);
	REFUSED("RMDIR of a file", &dir, rmdir_from(&dir, "file"), NFS3ERR_NOTDIR);
	WANT("RMDIR of '.'", NFS3ERR_INVAL, rmdir_from(&dir, "."));
	ONE_OF("RMDIR of '..'", rmdir_from(&dir, ".."), NFS3ERR_EXIST, NFS3ERR_INVAL,
	       NFS3ERR_NOTEMPTY);
	ONE_OF("RMDIR of an empty name", rmdir_from(&dir, ""), NFS3ERR_INVAL, NFS3ERR_NOENT,
	       NFS3ERR_ACCES);
	WANT("RMDIR of a name that is not there", NFS3ERR_NOENT, rmdir_from(&dir, "missing"));
	WANT("RMDIR of 256 bytes", NFS3ERR_NAMETOOLONG, rmdir_from(&dir, name));
	WANT("RMDIR in a file", NFS3ERR_NOTDIR, rmdir_from(&file, "name"));
	WANT("RMDIR at no handle at all", NFS3ERR_BADHANDLE, rmdir_from(&bad, "name"));
	WANT("REMOVE", NFS3_OK, remove_from(&dir, "file"));
	CHANGES("RMDIR", &session.dir, rmdir_from(&session.dir, "directory"));
	check(attributes_of(&session.dir).nlink == links - 1, "RMDIR: one link less above");
	WANT("RMDIR in a removed directory", NFS3ERR_STALE, rmdir_from(&dir, "name"));
	WANT("RMDIR again", NFS3ERR_NOENT, rmdir_from(&session.dir, "directory"));
}

void
check_removing(void)
{
	check_remove();
	check_rmdir();
}
