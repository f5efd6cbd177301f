// A server whose work per request is known. Options, each with a number:
//   --base, --extra        rounds of arithmetic per request, in two calls
//   --every, --burn-ms     the number of requests per burst, and the CPU time of each burst
//   --timer-ms, --tick-ms  the time between ticks of a timer, and the CPU time of each tick
//   --warm                 additional rounds per request at first, as before code is compiled:
//     --warm-cpu-ms        fewer and fewer rounds, until the server has used this much CPU time
//     --warm-pauses        all rounds, until the load has paused this many times for over 5 ms
//   --timed FILE           time the extra rounds of one request in 64 while serving, and append
//                          the mean in nanoseconds to the file at the end
//   --alone                do not serve, but time the extra rounds in stretches of this many
//                          requests, and print the nanoseconds per request of each stretch
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static uint64_t cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

// Each call waits for the result of the one before, so that the processor cannot overlap them.
static volatile uint64_t result;
static void work(uint64_t rounds) {
  uint64_t x = result;
  for (uint64_t i = 0; i < rounds; i++) x = x * 6364136223846793005ull + (x >> 33);
  result = x;
}

static void burn(double ms) {
  uint64_t end = cpu_ns() + (uint64_t)(ms * 1e6);
  while (cpu_ns() < end) work(100);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static const char *text(int argc, char **argv, const char *name) {
  for (int i = 1; i + 1 < argc; i++)
    if (!strcmp(argv[i], name)) return argv[i + 1];
  return 0;
}

static double option(int argc, char **argv, const char *name) {
  const char *value = text(argc, argv, name);
  return value ? atof(value) : 0;
}

enum { TIMED = 1 << 20 };
static double timed[TIMED];
static volatile sig_atomic_t is_over;
static void end(int signal) { is_over = signal; }

static int compare(const void *a, const void *b) {
  return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

// Returns the mean of the times up to three medians. During longer times, something else ran.
static double mean(double *values, int count) {
  double sum = 0;
  int kept = 0;
  qsort(values, count, sizeof *values, compare);
  while (kept < count && values[kept] <= 3 * values[count / 2]) sum += values[kept++];
  return kept ? sum / kept : 0;
}

static void append(const char *file, int count) {
  double clock[999];
  for (int i = 0; i < 999; i++) {
    uint64_t began = now_ns();
    clock[i] = now_ns() - began;
  }
  FILE *out = fopen(file, "a");
  if (out && count) fprintf(out, "%.1f\n", mean(timed, count) - mean(clock, 999));
  if (out) fclose(out);
}

static void arm(int timer, double ms) {
  struct itimerspec spec = {.it_value = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000}};
  timerfd_settime(timer, 0, &spec, 0);
}

int main(int argc, char **argv) {
  uint64_t base = option(argc, argv, "--base"), extra = option(argc, argv, "--extra");
  uint64_t every = option(argc, argv, "--every"), alone = option(argc, argv, "--alone");
  double burn_ms = option(argc, argv, "--burn-ms");
  double timer_ms = option(argc, argv, "--timer-ms"), tick_ms = option(argc, argv, "--tick-ms");
  uint64_t warm = option(argc, argv, "--warm"), more = warm;
  double warm_cpu_ms = option(argc, argv, "--warm-cpu-ms");
  int warm_pauses = option(argc, argv, "--warm-pauses");
  for (int stretch = 0; alone && stretch < 45; stretch++) {
    uint64_t began = cpu_ns();
    for (uint64_t i = 0; i < alone; i++) work(extra);
    printf("%.3f\n", (double)(cpu_ns() - began) / alone);
  }
  if (alone) return 0;

  const char *port = getenv("PORT");
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons(port ? atoi(port) : 8080),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) {
    perror("cannot listen");
    return 1;
  }
  int poll = epoll_create1(0), timer = -1;
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[512];
  epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
  if (timer_ms > 0) {
    event.data.fd = timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
    arm(timer, timer_ms);
  }
  static char request[65536];
  static const char response[] =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
  uint64_t served = 0, seen = 0;
  int count_timed = 0;
  const char *file = text(argc, argv, "--timed");
  if (file) sigaction(SIGTERM, &(struct sigaction){.sa_handler = end}, 0);
  for (;;) {
    if (is_over) {
      append(file, count_timed);
      return 0;
    }
    uint64_t asked = warm_pauses > 0 ? now_ns() : 0;
    int count = epoll_wait(poll, events, 512, -1);
    if (warm_pauses > 0 && now_ns() - asked > 5000000 && --warm_pauses == 0) more = 0;
    if (warm_cpu_ms > 0 && more) {
      double left = 1 - cpu_ns() / 1e6 / warm_cpu_ms;
      more = left > 0 ? warm * left : 0;
    }
    for (int i = 0; i < count; i++) {
      int fd = events[i].data.fd;
      if (fd == listener) {
        while ((event.data.fd = accept4(listener, 0, 0, SOCK_NONBLOCK)) >= 0) {
          setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
        }
        continue;
      }
      if (fd == timer) {
        burn(tick_ms);
        arm(timer, timer_ms);
        continue;
      }
      ssize_t length = recv(fd, request, sizeof request, 0);
      if (length < 0 && errno == EAGAIN) continue;
      // Every request is expected in one piece.
      if (length < 4 || memcmp(request + length - 4, "\r\n\r\n", 4)) {
        close(fd);
        continue;
      }
      if (base) work(base);
      if (extra && file && ++seen % 64 == 0 && count_timed < TIMED) {
        uint64_t began = now_ns();
        work(extra);
        timed[count_timed++] = now_ns() - began;
      } else if (extra) {
        work(extra);
      }
      if (more) work(more);
      if (every && ++served % every == 0) burn(burn_ms);
      if (send(fd, response, sizeof response - 1, MSG_NOSIGNAL) < 0) close(fd);
    }
  }
}
