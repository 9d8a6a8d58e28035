// Package caps finds out which Linux capabilities a process can never get,
// because the bounding set it was started with lacks them.
package caps

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// names are the capabilities by bit number, as in linux/capability.h. Only
// names found here can be removed; later ones pass through untouched.
var names = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE",
	"CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
	"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
	"CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE",
	"CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF",
	"CAP_CHECKPOINT_RESTORE",
}

// Missing returns the capabilities the kernel knows and this process lacks in
// its bounding set.
func Missing() ([]string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil, err
	}
	return missing(string(status), string(last))
}

func missing(status, last string) ([]string, error) {
	lastCap, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil {
		return nil, fmt.Errorf("cap_last_cap: %w", err)
	}
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, "CapBnd:")
		if !ok {
			continue
		}
		bounding, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("CapBnd: %w", err)
		}
		var out []string
		for bit, name := range names {
			if bit <= lastCap && bounding&(1<<bit) == 0 {
				out = append(out, name)
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("no CapBnd line in the process status")
}
