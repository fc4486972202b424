/* Streams of the C library on files, the standard ones among them, and programs that get them.
 * Prints what it found, which is the same on every file system. Usage: streams DIRECTORY */

#include <errno.h>
#include <error.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char one[4096], two[4096], line[256];

static void show(const char *name, const char *mark)
{
    FILE *file = fopen(name, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        printf("%s %s", mark, line);
    if (file != NULL)
        fclose(file);
}

static void plain_streams(void)
{
    FILE *file = fopen(one, "w+");
    fprintf(file, "hello %d\n", 7);
    fseek(file, 0, SEEK_SET);
    if (fgets(line, sizeof line, file) != NULL)
        printf("got %s at %ld\n", line, ftell(file));
    fseek(file, 0, SEEK_END);
    fputs("more\n", file);
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL)
        printf("line %s", line);
    printf("end %d, error %d\n", feof(file) != 0, ferror(file));
    fclose(file);
    file = fopen(one, "a");
    printf("appends at %ld\n", ftell(file));
    fputs("appended\n", file);
    fclose(file);
    file = fopen(one, "wx");
    printf("exclusive: %s\n", file != NULL ? "opened" : strerror(errno));
    file = fdopen(open(one, O_RDONLY), "w");
    printf("wrong mode: %s\n", file != NULL ? "opened" : strerror(errno));
}

static void spawn(void)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, two, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    char *words[] = {"sh", "-c", "echo spawned; echo twice", NULL};
    char *variables[] = {"A=b", NULL};
    pid_t pid;
    int status, result = posix_spawnp(&pid, "sh", &actions, NULL, words, variables);
    waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    printf("spawn %d %d\n", result, status);
}

static void redirected(void)
{
    printf("printed before ");
    int fd = open(one, O_WRONLY | O_APPEND), old = dup(1), status;
    dup2(fd, 1);
    printf("and written after\n");
    puts("puts");
    putchar('c');
    putchar('\n');
    fflush(stdout);
    dprintf(1, "dprintf %d\n", 5);
    if (system("echo system") != 0)
        perror("system");
    spawn();
    fflush(stdout);
    if (fork() == 0) {
        printf("child\n");
        fflush(stdout);
        execlp("echo", "echo", "executed", "child", (char *)NULL);
    }
    wait(&status);
    dup2(old, 1);
    close(old);
    close(fd);
    printf("back\n");
    show(one, "|");
    show(two, "#");
}

/* A stream of a file is opened again, for reading, on another file and for appending. */
static void opened_again(void)
{
    char text[16] = "";
    FILE *stream = fopen(one, "w");
    fputs("written\n", stream);
    FILE *now = freopen(one, "r", stream);
    printf("again %d %s", now == stream, now == NULL ? "" : fgets(text, sizeof text, now));
    now = freopen(two, "w+", now);
    fputs("other", now);
    rewind(now);
    printf("again %d %s\n", now == stream, fgets(text, sizeof text, now));
    now = freopen(one, "a", now);
    fputs("at the end", now);
    printf("again %d %ld\n", now == stream, ftell(now));
    fclose(now);
    show(one, "!");
}

static void by_number(void)
{
    char text[8] = "";
    int fd = open(one, O_RDONLY);
    char *memory = mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("mapped %.5s\n", memory);
    long got = syscall(SYS_pread64, fd, text, 5, 0L);
    printf("call %ld %s\n", got, text);
    long again = syscall(SYS_openat, AT_FDCWD, one, O_RDONLY);
    got = syscall(SYS_read, (int)again, text, 3);
    printf("call %ld %d\n", got, syscall(SYS_getpid) == getpid());
    got = syscall(SYS_close, 999);
    printf("call %ld %s\n", got, strerror(errno));
    close(fd);
    close((int)again);
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    snprintf(one, sizeof one, "%s/one", words[1]);
    snprintf(two, sizeof two, "%s/two", words[1]);
    plain_streams();
    redirected();
    opened_again();
    by_number();
    fflush(stdout);
    FILE *now = freopen(two, "w", stdout);
    fprintf(stderr, "opened again %d\n", now == stdout);
    printf("into two\n");
    error(0, EIO, "error %d", 4);
    fclose(stdout);
    int fd = open(two, O_WRONLY | O_APPEND);
    dup2(fd, 2);
    errno = EPERM;
    perror("to standard error");
    FILE *pipe = popen("cat >&2", "w");
    fputs("through a pipe\n", pipe);
    pclose(pipe);
    clearenv();
    return system("/bin/sh -c 'read -r first; echo \"$first\" >&2' < /dev/null; exit 3") != 0 ? 4 : 5;
}
