/* MOUNT version 3: what is exported, to whom, and the handles that everything begins with. */
#include <stdio.h>
#include <string.h>

#include "check.h"

static bool
listed(const char *path)
{
	for (unsigned each = 0; each < got.path_count; each++)
		if (strcmp(got.paths[each], path) == 0)
			return true;
	return false;
}

static void
check_paths(void)
{
	char path[600], longer[1025];
	fattr3 root = attributes_of(&session.root);
	const char *between = strcmp(session.path, "/") == 0 ? "" : session.path;

	make_file(&session.dir, "a-file", "text");
	snprintf(path, sizeof path, "%s/%s", session.path, "no-such-directory");
	check_mount("MNT of a path that is not there", mount_path(path), MNT3ERR_NOENT);
	snprintf(path, sizeof path, "%s/", session.path);
	check_mount("MNT with a slash at the end", mount_path(path), MNT3_OK);
	check(same_handle(&got.handle, &session.root), "MNT with a slash at the end: the root");
	snprintf(path, sizeof path, "%s/conformance", between);
	check_mount("MNT of a directory in the export", mount_path(path), MNT3_OK);
	check(same_handle(&got.handle, &session.dir),
	      "MNT of a directory in the export: the handle that LOOKUP gives");
	snprintf(path, sizeof path, "%s/conformance/a-file", between);
	check_mount("MNT of a file", mount_path(path), MNT3ERR_NOTDIR);
	snprintf(path, sizeof path, "%s/conformance/a-file/x", between);
	mount_path(path);
	check(got.status == MNT3ERR_NOTDIR || got.status == MNT3ERR_NOENT,
	      "MNT of a path through a file: refused");
	memset(longer, 'n', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	longer[0] = '/';
	mount_path(longer);
	check(got.status == MNT3ERR_NAMETOOLONG || got.status == MNT3ERR_ACCES,
	      "MNT of a name of 1,023 bytes: refused");
	snprintf(path, sizeof path, "%s/../..", session.path);
	mount_path(path);
	if (got.status == MNT3_OK) {
		struct handle found = got.handle;

		check(attributes_of(&found).fileid == root.fileid, "MNT with '..': the root");
	} else {
		check(got.status == MNT3ERR_NOENT || got.status == MNT3ERR_ACCES ||
			      got.status == MNT3ERR_INVAL,
		      "MNT with '..': refused");
	}
	WANT("REMOVE", NFS3_OK, remove_from(&session.dir, "a-file"));
}

void
check_mounting(void)
{
	bool sys = false;

	check(mount_null() == 0, "MOUNT NULL");
	check_mount("MNT of the export", mount_path(session.path), MNT3_OK);
	for (unsigned each = 0; each < got.flavour_count; each++)
		sys = sys || got.flavours[each] == 1;
	check(sys, "MNT of the export: AUTH_SYS is taken");
	check(got.handle.length > 0 && got.handle.length <= NFS3_FHSIZE,
	      "MNT of the export: a handle of %u bytes", got.handle.length);
	check(same_handle(&got.handle, &session.root), "MNT twice: the same handle");
	check(attributes_of(&session.root).type == NF3DIR, "the root is a directory");
	check_paths();

	mount_path(session.path);
	check(mount_dump() == 0 && listed(session.path), "DUMP has the mount");
	check(unmount_path(session.path) == 0, "UMNT");
	check(mount_dump() == 0 && !listed(session.path), "DUMP has it no more");
	check(unmount_path("/not/mounted") == 0, "UMNT of what is not mounted");
	mount_path(session.path);
	check(unmount_all() == 0, "UMNTALL");
	check(mount_dump() == 0 && got.path_count == 0, "DUMP is empty");
	check(attributes_of(&session.root).type == NF3DIR, "handles stay good after UMNT");
	check(mount_exports() == 0 && listed(session.path), "EXPORT has the export");
	for (unsigned each = 0; each < got.path_count; each++)
		if (strcmp(got.paths[each], session.path) == 0)
			check(got.hosts[each][0] != '\0', "EXPORT names who may mount: %s",
			      got.hosts[each]);
}
