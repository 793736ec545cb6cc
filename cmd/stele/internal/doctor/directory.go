package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/segment"
)

// DatabaseCheck looks for damage in a file of etcd's database that no process uses.
type DatabaseCheck func(ctx context.Context, file string) error

// directory is a data directory to look at.
type directory struct {
	Dir   string
	check DatabaseCheck

	report Report
	inUse  bool
	free   uint64 // of the disk, in bytes; 0 if unknown
}

// path returns the path of a file or folder in the directory.
func (d *directory) path(elem ...string) string {
	return filepath.Join(append([]string{d.Dir}, elem...)...)
}

// examine looks at all parts. The error is about a directory that cannot be read.
func (d *directory) examine(ctx context.Context) (*Report, error) {
	if _, err := os.ReadDir(d.Dir); err != nil {
		return nil, err
	}
	d.report = Report{Subject: d.Dir}
	if exists(d.path(datadir.Unfinished)) {
		d.report.add(Fail, "restore", "stele backup restore --help", "a backup has not been restored completely into it: repeat the same `stele backup restore`, which continues, or delete the folder and restore again")
		return d.report.finish(), nil
	}
	if !exists(d.path("etcd", "member")) {
		d.report.add(Fail, "directory", "stele serve --data-dir "+d.Dir, "it has no log: it is not the data directory of a server that has been started, or etcd is missing in it")
		return d.report.finish(), nil
	}
	for _, look := range []func(context.Context){
		d.lock, d.identity, d.sizes, d.disk, d.database, d.segments, d.checkpoints, d.leftovers, d.keys, d.certificates, d.clock,
	} {
		look(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return d.report.finish(), nil
}

// lock finds out whether a server uses the directory, without disturbing it.
func (d *directory) lock(context.Context) {
	folder, err := os.Open(d.Dir)
	if err != nil {
		d.report.add(Fail, "lock", "", "%v", err)
		return
	}
	defer folder.Close()
	err = unix.Flock(int(folder.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		d.report.add(OK, "lock", "", "no server uses the directory")
		return
	}
	d.inUse = true
	holder, _ := os.ReadFile(d.path("lock"))
	by := strings.TrimSpace(string(holder))
	by = cmp.Or(by, "unknown")
	d.report.add(OK, "lock", "", "process %s uses the directory; `stele doctor` without --data-dir asks it for more", by)
}

// identity checks that it is known to which log the directory belongs.
func (d *directory) identity(context.Context) {
	text, err := os.ReadFile(d.path("log.id"))
	id := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.report.add(Warn, "log", "", "log.id is missing: the first start was interrupted, or the file was not restored; the next start writes it")
	case err != nil:
		d.report.add(Fail, "log", "", "%v", err)
	case len(id) != 32:
		d.report.add(Fail, "log", "mv "+d.path("log.id")+" "+d.path("log.id.bad"), "log.id is damaged: it says %q", id)
	default:
		d.report.add(OK, "log", "", "it is log %s", id)
	}
}

// sizes lists how much each part takes.
func (d *directory) sizes(context.Context) {
	var parts []string
	for _, name := range []string{"etcd", "segments", "checkpoints", "history", "audit", "decisions"} {
		if exists(d.path(name)) {
			parts = append(parts, name+" "+size(uint64(sizeOf(d.path(name)))))
		}
	}
	d.report.add(OK, "sizes", "", "%s", strings.Join(parts, ", "))
}

// disk checks the free space.
func (d *directory) disk(context.Context) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.Dir, &s); err != nil {
		d.report.add(Warn, "disk", "", "the free space is unknown: %v", err)
		return
	}
	d.free = uint64(s.Bavail) * uint64(s.Bsize)
	d.report.disk(d.free, etcdlog.DefaultMinFree, "df -h "+d.Dir)
}

// disk reports the free space of a disk. Below the limit a server refuses writes.
func (r *Report) disk(free, limit uint64, do string) {
	switch {
	case free < limit:
		r.add(Fail, "disk", do, "%s free: writes are refused (507) below %s; delete other files on this disk, or enlarge it", size(free), size(limit))
	case free < 4*limit:
		r.add(Warn, "disk", do, "%s free: writes are refused (507) below %s; delete other files on this disk, or enlarge it", size(free), size(limit))
	default:
		r.add(OK, "disk", "", "%s free", size(free))
	}
}

// database checks etcd's database. If a server uses it, only its size is known.
func (d *directory) database(ctx context.Context) {
	file := d.path("etcd", "member", "snap", "db")
	info, err := os.Stat(file)
	if err != nil {
		d.report.add(Fail, "etcd", "stele backup restore --help", "%v: restore the directory from a backup", err)
		return
	}
	if d.inUse {
		d.report.add(OK, "etcd", "", "its database file has %s; what of it is in use, only the server knows", size(uint64(info.Size())))
		return
	}
	if d.check != nil {
		if err := d.check(ctx, file); err != nil {
			d.report.add(Fail, "etcd", "stele backup restore --help", "%v", err)
			return
		}
	}
	usage, err := etcdlog.ReadUsage(file)
	if err != nil {
		d.report.add(Fail, "etcd", "stele backup restore --help", "%v", err)
		return
	}
	d.report.database(usage.Used, usage.NoSpace, softLimit, fmt.Sprintf("stele serve --data-dir %s --etcd-quota %dGi", d.Dir, 2*etcdlog.DefaultQuota>>30))
}

// softLimit is the size of the log in etcd from which on a server with the default quota refuses writes, in bytes.
const softLimit = etcdlog.DefaultQuota / 10 * 8

// database reports how full etcd is.
func (r *Report) database(used int64, noSpace bool, limit int64, do string) {
	switch {
	case noSpace:
		r.add(Fail, "etcd", do, "it has raised the alarm NOSPACE and refuses all writes; a start with a larger quota clears the alarm")
	case used >= limit:
		r.add(Fail, "etcd", do, "%s in use: writes are refused (507) from %s on, unless the server has a larger quota", size(uint64(used)), size(uint64(limit)))
	case used >= limit/4*3:
		r.add(Warn, "etcd", do, "%s in use: writes are refused (507) from %s on, unless the server has a larger quota", size(uint64(used)), size(uint64(limit)))
	default:
		r.add(OK, "etcd", "", "%s in use of %s", size(uint64(used)), size(uint64(limit)))
	}
}

// segments checks the frames of all segments, and that they continue each other. It does not read them in full.
func (d *directory) segments(context.Context) {
	files, _ := filepath.Glob(d.path("segments", "*"+segment.LogFile))
	if len(files) == 0 {
		return
	}
	slices.Sort(files)
	verify := "stele proof verify --data-dir " + d.Dir
	cache := segment.NewCache(1 << 20)
	var last *segment.Info
	bad := 0
	for _, file := range files {
		of, err := segment.Open(file, cache)
		if err != nil {
			bad++
			d.report.add(Fail, "segments", "stele serve --data-dir "+d.Dir, "%v: a start makes it again if the events are still in etcd; otherwise restore the file from a backup", err)
			last = nil
			continue
		}
		info := of.Info()
		switch {
		case last != nil && last.First == info.First:
			bad++
			d.report.add(Warn, "segments", "stele serve --data-dir "+d.Dir, "%s is there in two generations; a start removes the older one", filepath.Base(file))
		case last != nil && last.After != info.Before:
			bad++
			d.report.add(Fail, "segments", verify, "%s begins after revision %d, and the one before it ends at %d: a segment is missing or of another log; restore it from a backup", filepath.Base(file), info.Before.Revision, last.Last)
		}
		last = &info
	}
	if bad == 0 {
		d.report.add(OK, "segments", "", "%d, up to revision %d", len(files), last.Last)
	}
}

// oldCheckpoint is the age from which on a checkpoint is worth a warning: a server with changes makes one each hour.
const oldCheckpoint = 24 * time.Hour

// largeLog is the size of etcd's folder from which on a start without a checkpoint takes long, in bytes.
const largeLog = 256 << 20

// checkpoints looks at the age of the newest checkpoint, by its file.
func (d *directory) checkpoints(context.Context) {
	files, _ := filepath.Glob(d.path("checkpoints", "*.ckpt"))
	if len(files) == 0 {
		if bytes := sizeOf(d.path("etcd")) + sizeOf(d.path("segments")); bytes > largeLog {
			d.report.add(Warn, "checkpoint", "stele serve --data-dir "+d.Dir, "there is none, and the log has %s: the next start reads all of it", size(uint64(bytes)))
		} else {
			d.report.add(OK, "checkpoint", "", "there is none yet; the log is small")
		}
		return
	}
	slices.Sort(files)
	newest := files[len(files)-1]
	info, err := os.Stat(newest)
	if err != nil {
		d.report.add(Warn, "checkpoint", "", "%v", err)
		return
	}
	age, revision := time.Since(info.ModTime()), strings.TrimLeft(strings.TrimSuffix(filepath.Base(newest), ".ckpt"), "0")
	written := newestFile(d.path("etcd"))
	switch {
	case info.Size() == 0:
		d.report.add(Fail, "checkpoint", "rm "+newest, "the newest one is empty; a start uses the one before, or reads the whole log")
	case written.Sub(info.ModTime()) > oldCheckpoint:
		d.report.add(Warn, "checkpoint", "stele doctor", "the newest one, of revision %s, is %s older than the newest writes: the server's own messages say why it makes none", revision, written.Sub(info.ModTime()).Round(time.Minute))
	default:
		d.report.add(OK, "checkpoint", "", "of revision %s, written %s ago", revision, age.Round(time.Second))
	}
}

// leftovers finds files that an interrupted process has left, if no process can be writing them. The beginning of the
// next segment, new.*.tmp, is there after every stop.
func (d *directory) leftovers(context.Context) {
	if d.inUse {
		return
	}
	var found []string
	for _, pattern := range []string{"segments/[^n]*.tmp", "checkpoints/*.tmp", "pki/*.tmp", ".*.tmp*"} {
		files, _ := filepath.Glob(d.path(filepath.FromSlash(pattern)))
		found = append(found, files...)
	}
	for _, payloads := range must(filepath.Glob(d.path("segments", "*"+segment.PayloadsFile))) {
		if !exists(strings.TrimSuffix(payloads, segment.PayloadsFile) + segment.LogFile) {
			found = append(found, payloads)
		}
	}
	if len(found) > 0 {
		d.report.add(Warn, "leftovers", "stele serve --data-dir "+d.Dir, "%d files of an interrupted process, such as %s; a start removes them", len(found), found[0])
	}
}

// must returns a value that is always there: the pattern of a Glob is right.
func must[T any](v T, _ error) T { return v }

// keys checks that no key is missing or readable for others.
func (d *directory) keys(context.Context) {
	missing, open := []string{}, []string{}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		info, err := os.Stat(d.path("pki", name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, name)
		case err == nil && strings.HasSuffix(name, ".key") && info.Mode().Perm()&0o077 != 0:
			open = append(open, d.path("pki", name))
		}
	}
	if slices.Equal(missing, []string{"sa.key"}) {
		d.report.add(Warn, "keys", "", "pki/sa.key is missing: that is right only if the server is started with --service-account-signing-key-file; otherwise restore it from a backup")
	} else if len(missing) > 0 {
		d.report.add(Fail, "keys", "stele serve --data-dir "+d.Dir+" --replace-lost-keys", "pki has no %s: restore the folder pki from a backup; with new keys all kubeconfigs and tokens made so far are refused", strings.Join(missing, ", "))
	}
	if len(open) > 0 {
		d.report.add(Fail, "keys", "chmod 600 "+strings.Join(open, " "), "other users of this machine may read %s", strings.Join(open, ", "))
	}
	if len(missing) == 0 && len(open) == 0 {
		d.report.add(OK, "keys", "", "all are there, for their owner alone")
	}
}

// certificates looks at when the certificates expire. The server renews its own ones.
func (d *directory) certificates(context.Context) {
	for _, c := range []struct{ file, do string }{
		{"ca.crt", "stele serve --data-dir " + d.Dir},
		{"server.crt", "stele serve --data-dir " + d.Dir},
		{"admin.crt", "stele serve --data-dir " + d.Dir},
	} {
		text, err := os.ReadFile(d.path("pki", c.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // reported with the keys, or made by a start
		}
		block, _ := pem.Decode(text)
		if err == nil && block == nil {
			err = errors.New("it has no certificate")
		}
		var cert *x509.Certificate
		if err == nil {
			cert, err = x509.ParseCertificate(block.Bytes)
		}
		if err != nil {
			d.report.add(Fail, "certificate", "", "pki/%s: %v; restore it from a backup", c.file, err)
			continue
		}
		d.report.certificate("pki/"+c.file, cert.NotAfter, c.do+" # a start renews it")
	}
}

// soon is how long before its expiry a certificate is worth a warning. Servers renew their own 30 days before.
const soon = 28 * 24 * time.Hour

// certificate reports when a certificate expires.
func (r *Report) certificate(name string, ends time.Time, do string) {
	switch left := time.Until(ends); {
	case left <= 0:
		r.add(Fail, "certificate", do, "%s has expired on %s", name, ends.Format(time.DateOnly))
	case left < soon:
		r.add(Warn, "certificate", do, "%s expires on %s", name, ends.Format(time.DateOnly))
	default:
		r.add(OK, "certificate", "", "%s is valid until %s", name, ends.Format(time.DateOnly))
	}
}

// tolerance is how far files may be in the future.
const tolerance = time.Minute

// clock compares the machine's clock with what was written.
func (d *directory) clock(context.Context) {
	newest := newestFile(d.path("etcd"))
	if ahead := time.Until(newest); ahead > tolerance {
		d.report.add(Fail, "clock", "timedatectl status", "the clock is %s behind the newest file of the log: set the clock; if the clock is right, start once with --accept-clock", ahead.Round(time.Second))
		return
	}
	d.report.add(OK, "clock", "", "not behind the log's files")
}
