// SPDX-License-Identifier: MIT

#include "live/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace tt::live {
namespace {

std::system_error launch_error(const std::string& what) {
  return {errno, std::generic_category(), what};
}

}  // namespace

Signals::Signals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&ours, signal);
  if (sigprocmask(SIG_BLOCK, &ours, &before_) != 0) throw launch_error("blocking signals");
  file_ = perf::File{::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (!file_.is_open()) throw launch_error("a file of signals");
}

Signals::~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

int Signals::wait(int milliseconds, int file) const {
  std::array<pollfd, 2> waits{{{file_.get(), POLLIN, 0}, {file, POLLIN, 0}}};
  if (::poll(waits.data(), file < 0 ? 1 : 2, milliseconds) <= 0) return 0;
  signalfd_siginfo found{};
  if (::read(file_.get(), &found, sizeof found) != sizeof found) return 0;
  return static_cast<int>(found.ssi_signo);
}

int launch(const std::vector<std::string>& command, const Signals& signals) {
  std::array<int, 2> ends{};  // the child's errno, if it cannot run the program
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw launch_error("a pipe");
  perf::File from{ends[0]};
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(ends[1]);
    throw launch_error("a process for " + command[0]);
  }
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
    ::execvp(words[0], words.data());
    const int error = errno;
    (void)!::write(ends[1], &error, sizeof error);
    ::_exit(127);
  }
  ::close(ends[1]);
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(from.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(child, nullptr, 0);
    errno = error;
    throw launch_error(command[0]);
  }
  return child;
}

bool ended(int pid, int& status) { return ::waitpid(pid, &status, WNOHANG) == pid; }

void end_as(int status, const Signals& signals) {
  if (WIFSIGNALED(status)) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);  // the child has left one, if it may
    std::signal(WTERMSIG(status), SIG_DFL);
    sigset_t mask = signals.before();
    sigdelset(&mask, WTERMSIG(status));
    ::raise(WTERMSIG(status));
    sigprocmask(SIG_SETMASK, &mask, nullptr);  // it comes now
  }
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace tt::live
