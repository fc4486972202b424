/* Takes and tries locks for locks.sh. The exit code is 0, or the errno of what was refused. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int file;

static void on_alarm(int number) { (void)number; }

static int lock(int command, int type, long start, long length)
{
    struct flock what;

    memset(&what, 0, sizeof what);
    what.l_type = type;
    what.l_whence = SEEK_SET;
    what.l_start = start;
    what.l_len = length;
    return fcntl(file, command, &what) == 0 ? 0 : errno;
}

/* Adds 1 to the number in the file, as often as said, each time under a lock. */
static int count(long times)
{
    char text[32];
    ssize_t length;
    int code;

    while (times-- > 0) {
        if ((code = lock(F_SETLKW, F_WRLCK, 0, 1)) != 0)
            return code;
        if ((length = pread(file, text, sizeof text - 1, 0)) < 0)
            return errno;
        text[length] = '\0';
        length = sprintf(text, "%ld\n", atol(text) + 1);
        if (pwrite(file, text, length, 0) != length)
            return EIO;
        if ((code = lock(F_SETLK, F_UNLCK, 0, 1)) != 0)
            return code;
    }
    return 0;
}

/* Holds a lock until its standard input ends, and gives it back, or ends as it is. */
static int hold(int type, long start, long length, int gives_back)
{
    int code = lock(F_SETLK, type, start, length);
    char byte;

    puts(code == 0 ? "held" : strerror(code));
    fflush(stdout);
    if (code != 0)
        return code;
    while (read(0, &byte, 1) > 0)
        continue;
    return gives_back ? lock(F_SETLK, F_UNLCK, start, length) : 0;
}

/* Locks one byte, waits on standard input, and then waits for the other byte: who of two that do this
   crosswise is told so (EDEADLK) ends, and with it its lock. */
static int cross(long mine, long theirs)
{
    char byte;
    int code = lock(F_SETLK, F_WRLCK, mine, 1);

    puts(code == 0 ? "held" : strerror(code));
    fflush(stdout);
    if (code != 0)
        return code;
    while (read(0, &byte, 1) > 0)
        continue;
    return lock(F_SETLKW, F_WRLCK, theirs, 1);
}

int main(int words, char **word)
{
    struct sigaction action;
    long start = words > 3 ? atol(word[3]) : 0, length = words > 4 ? atol(word[4]) : 0;
    const char *what = words > 2 ? word[1] : "";

    if (words < 3 || (file = open(word[2], O_RDWR | O_CREAT, 0666)) < 0)
        return 255;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm; /* without SA_RESTART: a wait ends with EINTR */
    sigaction(SIGALRM, &action, NULL);
    if (strcmp(what, "count") == 0)
        return count(start);
    if (strcmp(what, "hold") == 0)
        return hold(F_WRLCK, start, length, 1);
    if (strcmp(what, "hold-and-exit") == 0)
        return hold(F_WRLCK, start, length, 0);
    if (strcmp(what, "hold-shared") == 0)
        return hold(F_RDLCK, start, length, 1);
    if (strcmp(what, "try") == 0)
        return lock(F_SETLK, F_WRLCK, start, length);
    if (strcmp(what, "try-shared") == 0)
        return lock(F_SETLK, F_RDLCK, start, length);
    if (strcmp(what, "wait") == 0)
        return lock(F_SETLKW, F_WRLCK, start, length);
    if (strcmp(what, "wait-a-second") == 0) {
        alarm(1);
        return lock(F_SETLKW, F_WRLCK, start, length);
    }
    if (strcmp(what, "cross") == 0)
        return cross(start, length);
    if (strcmp(what, "try-flock") == 0)
        return flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    return 255;
}
