package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// record is the file that a host keeps in its state folder for each running process. The start time tells whether a
// process is still the one that had the id.
type record struct {
	Host       int    `json:"host"`
	HostStart  string `json:"hostStart"`
	Pid        int    `json:"pid,omitempty"` // 0: not started yet
	PidStart   string `json:"pidStart,omitempty"`
	Folder     string `json:"folder"`
	recordFile string
}

const recordPrefix = "plugin-"

func (r *record) write() error {
	if r.recordFile == "" {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return renameio.WriteFile(r.recordFile, text, 0o600)
}

func (r *record) started(pid int) error {
	r.Pid = pid
	r.PidStart, _ = startTime(pid) // empty if it has ended already
	return r.write()
}

func (r *record) remove() {
	if r.recordFile != "" {
		os.Remove(r.recordFile)
	}
}

// endLeftovers ends the processes of hosts with this state folder that crashed before they could do it.
func endLeftovers(state string, log *slog.Logger) error {
	entries, err := os.ReadDir(state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), recordPrefix) || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		file := filepath.Join(state, e.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil { // the server should start nevertheless
			log.Warn("a record of a process cannot be read", "file", file, "error", err)
			os.Remove(file)
			continue
		}
		if is(r.Host, r.HostStart) {
			continue // its host still runs
		}
		var left []int
		if is(r.Pid, r.PidStart) {
			left = append(left, -r.Pid) // the process group
		}
		if filepath.IsAbs(r.Folder) && strings.HasPrefix(filepath.Base(r.Folder), folderPrefix) {
			left = append(left, strays(r.Folder)...)
			os.RemoveAll(r.Folder)
		}
		for _, pid := range left {
			log.Warn("ended a process that an earlier run left behind", "pid", max(pid, -pid))
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		os.Remove(file)
	}
	return nil
}

// is reports whether the process with an id is the one that started at a time.
func is(pid int, started string) bool {
	if pid <= 0 || started == "" {
		return false
	}
	at, err := startTime(pid)
	return err == nil && at == started
}
