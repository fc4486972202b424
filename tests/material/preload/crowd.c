/* What hard programs do with descriptors, processes, signals and threads. Prints what it found, which
 * is the same on every file system. Usage: crowd DIRECTORY TASK */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 100, RECORD = 16, FILES = 5000, THREADS = 8, ROUNDS = 200 };

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static int open_file(const char *name, int flags)
{
    int fd = open(name, flags | O_CREAT, 0644);
    need(fd >= 0, name);
    return fd;
}

static off_t size_of(const char *name)
{
    struct stat found;
    need(stat(name, &found) == 0, name);
    return found.st_size;
}

/* Children share the position: every record is written once and read once. */
static void fork_many(void)
{
    int fd = open_file("shared", O_RDWR | O_TRUNC);
    for (int child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        need(pid >= 0, "fork");
        if (pid == 0) {
            char record[RECORD + 1], name[32], back[RECORD + 1] = "";
            snprintf(record, sizeof record, "child %8d\n\n", child);
            snprintf(name, sizeof name, "own-%d", child);
            int own = open(name, O_RDWR | O_CREAT, 0600);
            int good = own >= 0 && write(own, record, RECORD) == RECORD &&
                       pread(own, back, RECORD, 0) == RECORD && strcmp(record, back) == 0;
            _exit(good && write(fd, record, RECORD) == RECORD ? 0 : 1);
        }
    }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad += status != 0;
    char seen[CHILDREN] = {0}, record[RECORD];
    need(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    while (read(fd, record, RECORD) == RECORD)
        seen[atoi(record + 6)]++;
    int once = 0;
    for (int child = 0; child < CHILDREN; child++)
        once += seen[child] == 1;
    printf("bad %d, once %d, bytes %ld\n", bad, once, (long)size_of("shared"));
}

static void after_closing(const char *how, int fd)
{
    char text[8] = "";
    printf("%s: write %zd", how, write(fd, "x", 1));
    fd = open_file("file", O_RDWR | O_TRUNC);
    printf(", next %d, write %zd, read %zd %s\n", fd, write(fd, "fresh", 5), pread(fd, text, 5, 0),
           text);
    close(fd);
}

static void close_all(void)
{
    int fd = open_file("file", O_RDWR);
    for (int each = 3; each < 70000; each++)
        close(each);
    after_closing("loop", fd);
    fd = open_file("file", O_RDWR);
    need(close_range(3, ~0U, 0) == 0, "close_range");
    after_closing("close_range", fd);
    fd = open_file("file", O_RDWR);
    closefrom(3);
    after_closing("closefrom", fd);
}

static void open_many(void)
{
    struct rlimit limit;
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = FILES + 100;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    static int open_files[FILES];
    char name[32];
    for (int each = 0; each < FILES; each++) {
        snprintf(name, sizeof name, "many-%d", each % 50);
        open_files[each] = open_file(name, O_RDWR);
    }
    int good = 0;
    for (int each = 0; each < FILES; each++)
        good += pwrite(open_files[each], "y", 1, each) == 1;
    for (int each = 0; each < FILES; each++)
        good += close(open_files[each]) == 0;
    printf("good %d, bytes %ld\n", good, (long)size_of("many-7"));
}

static int log_fd;
static volatile sig_atomic_t handled, unwritten;

static void on_signal(int signal)
{
    (void)signal;
    int before = errno;
    handled++;
    if (write(log_fd, "signal\n", 7) != 7)
        unwritten++;
    errno = before;
}

static void signals(void)
{
    log_fd = open_file("log", O_WRONLY | O_APPEND | O_TRUNC);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    struct itimerval timer = {{0, 500}, {0, 500}};
    need(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
    int fd = open_file("busy", O_RDWR | O_TRUNC), bad = 0;
    char data[4096], back[4096];
    for (int round = 0; round < 3000 || handled < 100; round++) {
        memset(data, round, sizeof data);
        bad += pwrite(fd, data, sizeof data, round % 64 * 4096) != sizeof data;
        bad += pread(fd, back, sizeof back, round % 64 * 4096) != sizeof back;
        bad += memcmp(data, back, sizeof data) != 0;
    }
    timer = (struct itimerval){{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &timer, NULL);
    printf("bad %d, unwritten %d, all logged %d\n", bad, (int)unwritten,
           size_of("log") == 7 * (off_t)handled);
}

static void *write_records(void *argument)
{
    int *fd = argument;
    long bad = 0;
    for (int round = 0; round < ROUNDS; round++)
        bad += write(*fd, "0123456789abcde\n", RECORD) != RECORD;
    return (void *)bad;
}

static void threads(void)
{
    int fd = open_file("threads", O_RDWR | O_TRUNC);
    pthread_t all[THREADS];
    long bad = 0;
    for (int each = 0; each < THREADS; each++)
        need(pthread_create(&all[each], NULL, write_records, &fd) == 0, "pthread_create");
    for (int each = 0; each < THREADS; each++) {
        void *result;
        pthread_join(all[each], &result);
        bad += (long)result;
    }
    char record[RECORD];
    int whole = 0;
    lseek(fd, 0, SEEK_SET);
    while (read(fd, record, RECORD) == RECORD)
        whole += memcmp(record, "0123456789abcde\n", RECORD) == 0;
    printf("bad %ld, whole %d, at %ld\n", bad, whole, (long)lseek(fd, 0, SEEK_CUR));
}

static void exec_child(void)
{
    int fd = open_file("positions", O_RDWR | O_TRUNC);
    need(write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4, "write");
    char script[200];
    snprintf(script, sizeof script,
             "head -c 1 <&%d > taken; dd bs=1 count=2 status=none <&%d >> taken; echo X >&%d", fd, fd,
             fd);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("status %d, at %ld\n", status, (long)lseek(fd, 0, SEEK_CUR));
    execlp("sh", "sh", "-c", "cat taken; echo; cat positions", (char *)NULL);
    need(0, "exec");
}

static int number_to_use;

static void *wait_for_a_byte(void *ignored)
{
    char byte;
    need(read(number_to_use, &byte, 1) == 1, "read");
    return ignored;
}

static void *write_on_and_on(void *ignored)
{
    static char data[1 << 20];
    for (;;)
        need(pwrite(number_to_use, data, sizeof data, 0) > 0, "pwrite");
    return ignored;
}

static int is_cancelled(void *(*run)(void *), int fd, useconds_t after_us)
{
    pthread_t thread;
    void *result;
    number_to_use = fd;
    need(pthread_create(&thread, NULL, run, NULL) == 0, "pthread_create");
    usleep(after_us);
    need(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0, "pthread_cancel");
    return result == PTHREAD_CANCELED;
}

/* Threads are cancelled while they wait for a pipe, and in the middle of writing a file. */
static void cancel(void)
{
    int ends[2], fd = open_file("cancelled", O_RDWR), cancelled = 0, status;
    need(pipe(ends) == 0, "pipe");
    printf("in a pipe %d\n", is_cancelled(wait_for_a_byte, ends[0], 20000));
    for (int round = 0; round < 10; round++)
        cancelled += is_cancelled(write_on_and_on, fd, 5000 + 700 * (useconds_t)round);
    printf("in a file %d, then %ld\n", cancelled, (long)pwrite(fd, "x", 1, 0));
    fflush(stdout);
    if (fork() == 0)
        _exit(pwrite(fd, "y", 1, 0) == 1 ? 0 : 1);
    wait(&status);
    printf("a child %d\n", status);
}

/* Children that share the position are killed as they write, and are not waited for at first. */
static void killed(void)
{
    static char data[4 << 20];
    int fd = open_file("killed", O_RDWR);
    for (int round = 0; round < 10; round++) {
        pid_t pid = fork();
        need(pid >= 0, "fork");
        while (pid == 0)
            if (lseek(fd, 0, SEEK_SET) != 0 || write(fd, data, sizeof data) < 0)
                _exit(1);
        usleep(30000 + 1000 * (useconds_t)round);
        kill(pid, SIGKILL);
        alarm(30);
        need(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "x", 1) == 1, "write");
        alarm(0);
        waitpid(pid, NULL, 0);
    }
    puts("all written");
}

/* An open that gets no number neither cuts a file nor makes one. */
static void numbers(void)
{
    int fd = open_file("kept", O_RDWR | O_TRUNC);
    need(write(fd, "kept", 4) == 4, "write");
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 20;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    while (dup(fd) >= 0)
        ;
    int cut = open("kept", O_WRONLY | O_TRUNC);
    printf("%d %s\n", cut, strerror(errno));
    int made = open("made", O_WRONLY | O_CREAT, 0644);
    printf("%d %s\n", made, strerror(errno));
    printf("%ld bytes, %d\n", (long)size_of("kept"), access("made", F_OK));
}

static int mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    need(file != NULL, "maps");
    int lines = 0, byte;
    while ((byte = getc(file)) != EOF)
        lines += byte == '\n';
    fclose(file);
    return lines;
}

/* A file that was open at a fork leaves nothing behind when it is closed. */
static void forks_and_files(void)
{
    int before = 0;
    for (int round = 0; round < 100; round++) {
        int fd = open_file("one of many", O_RDWR);
        pid_t pid = fork();
        need(pid >= 0, "fork");
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
        close(fd);
        if (round == 20)
            before = mappings();
    }
    printf("grows %d\n", mappings() - before > 20);
}

/* What `close_range` does not know closes nothing. */
static void flags(void)
{
    int fd = open_file("flags", O_RDWR);
    int result = close_range((unsigned)fd, (unsigned)fd, 1 << 10);
    printf("%d %s\n", result, strerror(errno));
    printf("%ld\n", (long)write(fd, "x", 1));
}

static void nothing(int signal)
{
    (void)signal;
}

/* A handler ends the wait for a lock only if it was not installed to start calls again. */
static void restart(void)
{
    struct sigaction action = {.sa_handler = nothing};
    for (int again = 0; again < 2; again++) {
        int ends[2], fd = open_file("locked", O_RDWR);
        char byte;
        action.sa_flags = again ? SA_RESTART : 0;
        need(sigaction(SIGALRM, &action, NULL) == 0 && pipe(ends) == 0, "sigaction");
        pid_t pid = fork();
        if (pid == 0) {
            int own = open_file("locked", O_RDWR);
            need(flock(own, LOCK_EX) == 0 && write(ends[1], "x", 1) == 1, "flock");
            usleep(1500000);
            _exit(0);
        }
        need(read(ends[0], &byte, 1) == 1, "read");
        /* Again and again: the first may come before the wait has begun. */
        ualarm(300000, 300000);
        int result = flock(fd, LOCK_EX), error = errno;
        ualarm(0, 0);
        printf("%d %s\n", result, result == 0 ? "" : strerror(error));
        waitpid(pid, NULL, 0);
        close(fd);
    }
}

int main(int count, char **words)
{
    need(count == 3 && chdir(words[1]) == 0, "crowd DIRECTORY TASK");
    static const struct {
        const char *name;
        void (*run)(void);
    } tasks[] = {
        {"fork", fork_many},   {"close", close_all},  {"open", open_many},
        {"signals", signals}, {"threads", threads}, {"exec", exec_child},
        {"cancel", cancel},    {"killed", killed},   {"numbers", numbers},
        {"restart", restart},  {"flags", flags},      {"forks and files", forks_and_files},
    };
    for (size_t each = 0; each < sizeof tasks / sizeof *tasks; each++) {
        if (strcmp(tasks[each].name, words[2]) == 0) {
            tasks[each].run();
            return 0;
        }
    }
    return 2;
}
