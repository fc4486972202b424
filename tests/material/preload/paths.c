/* The working directory, and paths in every form. The second argument is a directory that is never in
 * the pool; in it the name "in" is a symlink to the base directory. */
#include "tell.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *outside;
static char buffer[PATH_MAX];

static void put(const char *path, const char *text)
{
	int fd = FD(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));

	T(write(fd, text, strlen(text)));
	close(fd);
}

static void show(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY);
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (got < 0)
		printf("  %s: %s\n", tail(path), strerrorname_np(errno));
	else
		printf("  %s: %.*s\n", tail(path), (int)got, text);
	close(fd);
}

static const char *out(const char *name)
{
	static char path[4096];

	snprintf(path, sizeof path, "%s/%s", outside, name);
	return path;
}

static void working(void)
{
	struct stat one, other;
	int dir;

	T(chdir(at("d")));
	P(getcwd(buffer, sizeof buffer));
	P(getcwd(NULL, 0));
	P(getcwd(buffer, 2));
	P(getcwd(buffer, 0));
	P(get_current_dir_name());
	put("relative", "in d");
	show("relative");
	show("./relative");
	show("../d/relative");
	show(at("d/relative"));
	T(stat(".", &one));
	T(stat(at("d"), &other));
	T(one.st_ino == other.st_ino && one.st_dev == other.st_dev);
	T(chdir("sub"));
	P(getcwd(buffer, sizeof buffer));
	T(chdir(".."));
	P(getcwd(buffer, sizeof buffer));
	T(chdir("none"));
	T(chdir("relative"));
	T(chdir(""));
	P(getcwd(buffer, sizeof buffer));
	T(chdir("./sub//../sub/"));
	P(getcwd(buffer, sizeof buffer));
	/* Renamed under our feet. */
	T(rename(at("d"), at("d-new")));
	P(getcwd(buffer, sizeof buffer));
	T(chdir(".."));
	P(getcwd(buffer, sizeof buffer));
	show("relative");
	T(rename(at("d-new"), at("d")));
	dir = FD(open("sub", O_RDONLY | O_DIRECTORY));
	T(chdir("/"));
	P(getcwd(buffer, sizeof buffer));
	T(fchdir(dir));
	P(getcwd(buffer, sizeof buffer));
	T(close(dir));
	T(fchdir(-1));
	dir = FD(open("../relative", O_RDONLY));
	T(fchdir(dir));
	T(close(dir));
	dir = FD(open(at("d"), O_PATH));
	T(fchdir(dir));
	P(getcwd(buffer, sizeof buffer));
	T(close(dir));
	T(readlink("/proc/self/cwd", buffer, sizeof buffer) > 0);
}

static void symlinks(void)
{
	T(symlink("d/sub", at("to-sub")));
	T(chdir(at("to-sub")));
	P(getcwd(buffer, sizeof buffer));
	T(chdir(".."));
	P(getcwd(buffer, sizeof buffer));
	/* In from outside, and out again. */
	T(chdir(outside));
	T(symlink(base_path, "in"));
	show("in/d/relative");
	T(chdir("in/d"));
	P(getcwd(buffer, sizeof buffer));
	show("relative");
	T(symlink(outside, at("out")));
	put(out("there"), "outside");
	show(at("out/there"));
	show(at("out/in/d/relative"));
	T(chdir(at("out")));
	T(strcmp(getcwd(buffer, sizeof buffer), outside));
	show("there");
	T(chdir("in/d/sub/../../out/in/d"));
	P(getcwd(buffer, sizeof buffer));
	T(rename("relative", out("moved")) == 0 || errno == EXDEV);
	T(access(out("moved"), F_OK) == 0 ? rename(out("moved"), "relative") : 0);
	T(link("relative", at("linked")));
	T(unlink(at("linked")));
}

static void real(void)
{
	char *path;

	T(chdir(at("d")));
	P(realpath(".", buffer));
	P(realpath("sub/..", buffer));
	P(realpath("../to-sub", NULL));
	P(realpath(at("d//sub/./../relative"), buffer));
	P(realpath(at("none"), buffer));
	P(realpath(at("d/relative/x"), buffer));
	P(realpath(at("d/relative/"), buffer));
	P(realpath("", buffer));
	P(realpath(out("in/d/relative"), buffer));
	P(realpath(at("out/in/to-sub"), buffer));
	P(canonicalize_file_name("relative"));
	path = realpath(at("out/there"), buffer);
	T(path != NULL && strcmp(path, out("there")) == 0);
	T(symlink("loop", at("loop")));
	P(realpath(at("loop"), buffer));
	P(realpath("/usr/../etc", buffer));
}

static void children(void)
{
	int state;
	pid_t child;

	T(chdir(at("d/sub")));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		P(getcwd(buffer, sizeof buffer));
		T(chdir(".."));
		P(getcwd(buffer, sizeof buffer));
		show("relative");
		fflush(stdout);
		_exit(0);
	}
	T(waitpid(child, &state, 0) == child && state == 0);
	P(getcwd(buffer, sizeof buffer));
	/* Removed under our feet. */
	T(mkdir("gone", 0755));
	T(chdir("gone"));
	T(rmdir("../gone"));
	P(getcwd(buffer, sizeof buffer));
	T(mkdir("x", 0755));
	T(chdir(at("")));
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	base_path = arguments[1];
	outside = arguments[2];
	umask(022);
	T(mkdir(at("d"), 0755));
	T(mkdir(at("d/sub"), 0755));
	working();
	symlinks();
	real();
	children();
	return 0;
}
