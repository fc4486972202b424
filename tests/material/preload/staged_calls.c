/* Calls with paths that the usual tools do not make, in the directory given: each prints what came of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

static void say(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
}

static void show(const char *what, int fd)
{
    char text[64] = "";
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    printf("%s: %s\n", what, got < 0 ? strerrorname_np(errno) : text);
    if (fd >= 0)
        close(fd);
}

static int regular;

static int on_entry(const char *path, const struct stat *found, int kind, struct FTW *at)
{
    (void)path, (void)found, (void)at;
    regular += kind == FTW_F;
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void listing(void)
{
    glob_t found;
    say("glob", glob("sub/*", 0, NULL, &found) == 0 ? 0 : -1);
    for (size_t at = 0; at < found.gl_pathc; at++)
        puts(found.gl_pathv[at]);
    globfree(&found);
    say("nftw", nftw(".", on_entry, 8, FTW_PHYS));
    printf("%d files\n", regular);
    struct dirent **names;
    int count = scandir("sub", &names, NULL, by_name);
    for (int at = 0; at < count; at++)
        puts(names[at]->d_name);
    DIR *dir = opendir("sub");
    struct stat one, other;
    fstat(dirfd(dir), &one);
    stat("sub", &other);
    printf("same: %d\n", one.st_ino == other.st_ino && one.st_dev == other.st_dev);
    show("openat", openat(dirfd(dir), "deep/file", O_RDONLY));
    show("openat above", openat(dirfd(dir), "../one", O_RDONLY));
    int copy = dup(dirfd(dir));
    closedir(dir);
    show("openat of a copy", openat(copy, "second", O_RDONLY));
    say("fchdir", fchdir(copy));
    close(copy);
    show("in it", open("second", O_RDONLY));
    show("beside it", open("../one", O_RDONLY));
    say("chdir", chdir(".."));
}

/* Above a map it is the host's that is walked, with or without a job. */
static void above(void)
{
    char *roots[] = {"/proc/self/task", NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL, NULL);
    printf("fts: %d\n", walk != NULL && fts_read(walk) != NULL);
    fts_close(walk);
}

static void asking(const char *dir)
{
    char path[PATH_MAX], text[PATH_MAX];
    struct statx found;
    struct statvfs space;
    say("statx", statx(AT_FDCWD, "numbers", 0, STATX_ALL, &found));
    printf("%llu %o\n", (unsigned long long)found.stx_size, found.stx_mode);
    say("statx of a link", statx(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_ALL, &found));
    printf("%o\n", found.stx_mode & S_IFMT);
    say("faccessat", faccessat(AT_FDCWD, "sub/second", R_OK, AT_EACCESS));
    say("getxattr", getxattr("one", "user.none", text, sizeof text));
    say("listxattr", listxattr("sub/second", text, sizeof text));
    say("statvfs", statvfs("numbers", &space));
    printf("%ld\n", pathconf("numbers", _PC_NAME_MAX));
    printf("%s\n", realpath("dirlink/../up", path) ? path : strerrorname_np(errno));
    printf("%s\n", realpath("sub/missing", path) ? path : strerrorname_np(errno));
    printf("%s\n", getcwd(path, sizeof path));
    text[readlink("/proc/self/cwd", text, sizeof text - 1)] = 0;
    printf("%d\n", strcmp(path, text));
    snprintf(path, sizeof path, "%s/../data/./sub//../one", dir);
    show("dots", open(path, O_RDONLY));
    show("by number", (int)syscall(SYS_openat, AT_FDCWD, "sub/up", O_RDONLY));
    show("a directory", open("sub", O_RDONLY));
    show("not a directory", open("one/x", O_RDONLY));
    show("no directory", open("one", O_RDONLY | O_DIRECTORY));
    show("no link", open("link", O_RDONLY | O_NOFOLLOW));
    show("nothing", open("", O_RDONLY));
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    show("too long", open(path, O_RDONLY));
    path[300] = 0;
    show("too long a name", open(path, O_RDONLY));
    show("no path", open((const char *)16, O_RDONLY));
}

static void streams(void)
{
    char line[64] = "";
    FILE *file = fopen("sub/second", "re");
    printf("fopen: %s", fgets(line, sizeof line, file));
    file = freopen("sub/deep/file", "r", file);
    printf("freopen: %s", fgets(line, sizeof line, file));
    fclose(file);
    printf("fopen: %s\n", fopen("sub/none", "r") ? "found" : strerrorname_np(errno));
    file = popen("cat one", "r");
    printf("popen: %s", fgets(line, sizeof line, file));
    pclose(file);
    fflush(stdout);
    printf("system: %d\n", system("cat sub/name*"));
}

static void ended(const char *what, pid_t child)
{
    int failed = errno, status = 0;
    if (failed == 0)
        waitpid(child, &status, 0);
    printf("%s: %d %d\n", what, failed, status);
    fflush(stdout);
}

static void starting(const char *dir)
{
    pid_t child;
    int status;
    posix_spawn_file_actions_t actions;
    char *cat[] = {"cat", NULL}, *run[] = {"./run.sh", "x", NULL}, *none[] = {NULL};
    char path[PATH_MAX];
    fflush(stdout);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "pkg/data.txt", O_RDONLY, 0);
    errno = posix_spawnp(&child, "cat", &actions, NULL, cat, environ);
    ended("posix_spawnp", child);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    snprintf(path, sizeof path, "%s/sub", dir);
    posix_spawn_file_actions_addchdir_np(&actions, path);
    posix_spawn_file_actions_addopen(&actions, 0, "deep/file", O_RDONLY, 0);
    fflush(stdout);
    errno = posix_spawnp(&child, "cat", &actions, NULL, cat, none);
    ended("posix_spawnp in a directory", child);
    posix_spawn_file_actions_destroy(&actions);
    fflush(stdout);
    errno = posix_spawn(&child, "./run.sh", NULL, NULL, run, none);
    ended("posix_spawn", child);
    fflush(stdout);
    if (fork() == 0) {
        execle("/bin/cat", "cat", "numbers", "missing", (char *)NULL, none);
        _exit(9);
    }
    wait(&status);
    printf("%d\n", WEXITSTATUS(status));
    say("execv", execv("sub", run));
    say("execv", execv("one", run));
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal)
{
    (void)signal;
    int fd = open("one", O_RDONLY);
    alarms += fd >= 0;
    close(fd);
}

static void *reads(void *at)
{
    long failed = 0;
    for (int turn = 0; turn < 200; turn++) {
        char path[64];
        struct stat found;
        snprintf(path, sizeof path, "crowd/%d", (int)((long)at * 50 + turn) % 400);
        int fd = open(path, O_RDONLY);
        failed += fd < 0 || stat(path, &found) != 0 || found.st_size != 3;
        failed += open("crowd/none", O_RDONLY) >= 0;
        close(fd);
        if (turn % 40 == 0) {
            pid_t child = fork();
            if (child == 0)
                _exit(access("crowd/7", R_OK) != 0 || access("crowd/gone", F_OK) == 0);
            int status = 1;
            waitpid(child, &status, 0);
            failed += status != 0;
        }
    }
    return (void *)failed;
}

/* Threads, forks and a handler, all of which ask at once. */
static void crowd(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_t threads[6];
    long failed = 0;
    for (long at = 0; at < 6; at++)
        pthread_create(&threads[at], NULL, reads, (void *)at);
    for (int at = 0; at < 6; at++) {
        void *result;
        pthread_join(threads[at], &result);
        failed += (long)result;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("crowd: %ld failed, handlers %s\n", failed, alarms > 0 ? "ran" : "did not run");
}

int main(int count, char **words)
{
    (void)count;
    setvbuf(stdout, NULL, _IOLBF, 0);
    say("chdir", chdir(words[1]));
    listing();
    above();
    asking(words[1]);
    streams();
    starting(words[1]);
    crowd();
    return 0;
}
