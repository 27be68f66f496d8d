// confine --user UID [--writable DIR]… -- PROGRAM ARGUMENT…
//
// Runs a program as a hardened systemd unit would: User=UID, CapabilityBoundingSet= (none),
// NoNewPrivileges=yes, ProtectSystem=strict with ReadWritePaths=DIR, and a filter of system calls.
// The filter is narrower than SystemCallFilter=@system-service mincore ~@privileged @resources. A
// call that needs a privilege is refused with EPERM, as there. Any other call that is not listed
// below kills the program, so that a test sees it. Needs root. Exit status 77: this machine does
// not permit that to root.
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int kCannot = 77;
constexpr int kFiles[] = {SYS_read,       SYS_write,           SYS_readv,      SYS_writev,
                          SYS_pread64,    SYS_pwrite64,        SYS_lseek,      SYS_openat,
                          SYS_close,      SYS_close_range,     SYS_dup,        SYS_dup3,
                          SYS_fstat,      SYS_newfstatat,      SYS_statx,      SYS_faccessat,
                          SYS_faccessat2, SYS_fcntl,           SYS_flock,      SYS_fsync,
                          SYS_fdatasync,  SYS_sync_file_range, SYS_ftruncate,  SYS_fallocate,
                          SYS_renameat,   SYS_renameat2,       SYS_unlinkat,   SYS_mkdirat,
                          SYS_linkat,     SYS_readlinkat,      SYS_getdents64, SYS_getcwd,
                          SYS_fchdir,     SYS_fchmod,          SYS_fchmodat,   SYS_umask,
                          SYS_statfs,     SYS_fstatfs,         SYS_ioctl,      SYS_fadvise64};
constexpr int kMemory[] = {SYS_mmap,  SYS_munmap, SYS_mremap,       SYS_mprotect, SYS_madvise,
                           SYS_msync, SYS_brk,    SYS_memfd_create, SYS_mincore};
constexpr int kProcesses[] = {SYS_clone,
                              SYS_clone3,
                              SYS_execve,
                              SYS_execveat,
                              SYS_exit,
                              SYS_exit_group,
                              SYS_wait4,
                              SYS_waitid,
                              SYS_set_tid_address,
                              SYS_set_robust_list,
                              SYS_futex,
                              SYS_rseq,
                              SYS_membarrier,
                              SYS_sched_yield,
                              SYS_sched_getaffinity,
                              SYS_getpriority,
                              SYS_gettid,
                              SYS_getpid,
                              SYS_getppid,
                              SYS_getuid,
                              SYS_geteuid,
                              SYS_getgid,
                              SYS_getegid,
                              SYS_prctl,
                              SYS_prlimit64,
                              SYS_getrusage,
                              SYS_uname,
                              SYS_sysinfo,
                              SYS_getcpu,
                              SYS_getrandom,
                              SYS_kill,
                              SYS_tgkill,
                              SYS_pidfd_open,
                              SYS_pidfd_send_signal,
                              SYS_restart_syscall};
constexpr int kSignals[] = {SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
                            SYS_rt_sigtimedwait, SYS_sigaltstack};
constexpr int kEvents[] = {
    SYS_ppoll,        SYS_pselect6,        SYS_epoll_create1,   SYS_epoll_ctl,
    SYS_epoll_pwait,  SYS_epoll_pwait2,    SYS_eventfd2,        SYS_pipe2,
    SYS_signalfd4,    SYS_timerfd_create,  SYS_timerfd_settime, SYS_clock_gettime,
    SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep,       SYS_gettimeofday};
constexpr int kSockets[] = {SYS_socket,      SYS_socketpair, SYS_bind,       SYS_listen,
                            SYS_accept4,     SYS_accept,     SYS_connect,    SYS_getsockname,
                            SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_sendto,
                            SYS_recvfrom,    SYS_sendmsg,    SYS_recvmsg,    SYS_shutdown};
#ifdef __x86_64__  // the older forms, which the C library uses there
constexpr int kOlder[] = {SYS_open,   SYS_stat,       SYS_lstat, SYS_access, SYS_dup2,
                          SYS_rename, SYS_unlink,     SYS_mkdir, SYS_link,   SYS_readlink,
                          SYS_chmod,  SYS_arch_prctl, SYS_poll,  SYS_select, SYS_epoll_wait,
                          SYS_pipe,   SYS_vfork};
#else
constexpr int kOlder[] = {SYS_read};
#endif
// systemd's @resources.
constexpr int kRefused[] = {
    SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
    SYS_setpriority,       SYS_ioprio_set,         SYS_mbind,          SYS_set_mempolicy,
    SYS_migrate_pages,     SYS_move_pages};
#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

[[noreturn]] void Give(int status, const char* what) {
  std::fprintf(stderr, "confine: %s: %s\n", what, std::strerror(errno));
  std::exit(status);
}

// Makes the whole file system read-only for this process and its children, except `writable`.
void ProtectFiles(const std::vector<std::string>& writable) {
  if (unshare(CLONE_NEWNS) != 0) Give(kCannot, "a mount namespace");
  if (mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Give(kCannot, "private mounts");
  for (const std::string& path : writable) {
    if (mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) {
      Give(kCannot, path.c_str());
    }
  }
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attributes, sizeof attributes) !=
      0) {
    Give(kCannot, "a read-only file system");
  }
  attributes = {};
  attributes.attr_clr = MOUNT_ATTR_RDONLY;
  for (const std::string& path : writable) {
    if (syscall(SYS_mount_setattr, AT_FDCWD, path.c_str(), 0, &attributes, sizeof attributes) !=
        0) {
      Give(kCannot, path.c_str());
    }
  }
}

void BecomeUser(uid_t user) {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) Give(kCannot, "dropping capabilities");
  }
  if (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
      setresuid(user, user, user) != 0) {
    Give(kCannot, "becoming the user");
  }
  // The change of user has cleared this setting, which ends the program when its test dies.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void FilterSystemCalls() {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  const auto answer = [&program](std::span<const int> numbers, uint32_t action) {
    for (const int number : numbers) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
      program.push_back(BPF_STMT(BPF_RET | BPF_K, action));
    }
  };
  for (const std::span<const int> group : std::initializer_list<std::span<const int>>{
           kFiles, kMemory, kProcesses, kSignals, kEvents, kSockets, kOlder}) {
    answer(group, SECCOMP_RET_ALLOW);
  }
  answer(kRefused, SECCOMP_RET_ERRNO | EPERM);
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    Give(kCannot, "a filter of system calls");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> writable;
  long user = -1;
  int i = 1;
  for (; i + 1 < argc && std::strcmp(argv[i], "--") != 0; i += 2) {
    const std::string option = argv[i];
    if (option == "--user") user = std::atol(argv[i + 1]);
    if (option == "--writable") writable.emplace_back(argv[i + 1]);
  }
  if (user <= 0 || i + 1 >= argc) {
    std::fprintf(stderr, "usage: confine --user UID [--writable DIR]... -- PROGRAM ARGUMENT...\n");
    return 2;
  }
  char** const command = argv + i + 1;
  // Opened as root: the user need not reach the folder that it was built in.
  const int program = open(command[0], O_PATH | O_CLOEXEC);
  if (program < 0) Give(1, command[0]);
  ProtectFiles(writable);
  BecomeUser(static_cast<uid_t>(user));
  FilterSystemCalls();
  syscall(SYS_execveat, program, "", command, environ, AT_EMPTY_PATH);
  Give(1, command[0]);
}
