package doctor

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// folder is a data directory of a test.
type folder struct {
	*testing.T
	directory
}

// newFolder makes a data directory in which nothing is wrong: a database, segments, a checkpoint, keys.
func newFolder(t *testing.T) *folder {
	f := &folder{t, directory{Dir: t.TempDir()}}
	f.database(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("alarm")); return err })
	f.segments()
	f.write("checkpoints/00000000000000000040.ckpt", []byte("content"))
	f.write("audit/audit.log", []byte("{}\n"))
	for _, name := range []string{"ca", "server", "admin"} {
		f.certificate(name, time.Now().Add(300*24*time.Hour))
	}
	f.write("pki/sa.key", []byte("key"))
	return f
}

func (f *folder) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *folder) write(name string, content []byte) {
	f.Helper()
	f.must(os.MkdirAll(filepath.Dir(f.path(name)), 0o700))
	f.must(os.WriteFile(f.path(name), content, 0o600))
}

func (f *folder) database(change func(*bbolt.Tx) error) {
	f.Helper()
	f.must(os.MkdirAll(f.path("etcd", "member", "snap"), 0o700))
	db, err := bbolt.Open(f.path("etcd", "member", "snap", "db"), 0o600, nil)
	f.must(err)
	f.must(db.Update(change))
	f.must(db.Close())
}

// segments writes five segments of ten revisions each, and the id of their log.
func (f *folder) segments() {
	f.Helper()
	log, err := eventlog.Open(f.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	f.must(err)
	batches, err := log.CatchUp(f.Context(), log.Start())
	f.must(err)
	at := batches[0].Head()
	for range 50 {
		entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED}})
		f.must(err)
		b, _, err := log.Append(f.Context(), at, eventlog.NewDraft([]*eventlog.Entry{entry}))
		f.must(err)
		at = b.Head()
	}
	a, err := archive.Open(archive.Options{Dir: f.path("segments"), Log: log.ID(), SegmentRevisions: 10})
	f.must(err)
	_, err = a.Seal(f.Context(), log, at)
	f.must(err)
	f.write("log.id", []byte(log.ID().String()+"\n"))
}

func (f *folder) certificate(name string, ends time.Time) {
	f.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	f.must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-365 * 24 * time.Hour), NotAfter: ends}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	f.must(err)
	f.write("pki/"+name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	f.write("pki/"+name+".key", []byte("key"))
}

// look returns what is found.
func (f *folder) look() *Report {
	f.Helper()
	r, err := f.examine(f.Context())
	f.must(err)
	return r
}

// finds checks that a report has a finding, with the text in it, and a command if it is not ok.
func finds(t *testing.T, r *Report, level Level, name, text string) {
	t.Helper()
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Level == level && f.Name == name && strings.Contains(f.What, text)
	}) {
		t.Errorf("no finding %s %s %q in\n%s", level, name, text, r.text(false))
	}
}

func TestAHealthyDirectory(t *testing.T) {
	f := newFolder(t)
	r := f.look()
	var disk unix.Statfs_t
	f.must(unix.Statfs(f.Dir, &disk))
	if r.Worst != OK && uint64(disk.Bavail)*uint64(disk.Bsize) > 1<<30 {
		t.Errorf("it is %s:\n%s", r.Worst, r.text(false))
	}
	for _, name := range []string{"lock", "log", "sizes", "etcd", "segments", "checkpoint", "keys", "certificate", "clock"} {
		finds(t, r, OK, name, "")
	}
	finds(t, r, OK, "segments", "5, up to revision 50")
}

func TestFindingsOfADirectory(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(*folder)
		level  Level
		on     string
		text   string
	}{
		{"no etcd", func(f *folder) { f.must(os.RemoveAll(f.path("etcd"))) }, Fail, "directory", "it has no log"},
		{"an unfinished restore", func(f *folder) { f.write("restoring.json", []byte("{}")) }, Fail, "restore", "has not been restored completely"},
		{"a server runs", func(f *folder) {
			lock, err := os.Open(f.Dir)
			f.must(err)
			f.Cleanup(func() { lock.Close() })
			f.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
			f.write("lock", []byte("4711\n"))
		}, OK, "lock", "process 4711 uses the directory"},
		{"no id", func(f *folder) { f.must(os.Remove(f.path("log.id"))) }, Warn, "log", "log.id is missing"},
		{"a bad id", func(f *folder) { f.write("log.id", []byte("x")) }, Fail, "log", "log.id is damaged"},
		{"no database", func(f *folder) { f.must(os.Remove(f.path("etcd/member/snap/db"))) }, Fail, "etcd", "no such file"},
		{"a damaged database", func(f *folder) { f.write("etcd/member/snap/db", make([]byte, 1<<16)) }, Fail, "etcd", "is damaged"},
		{"a database that the check refuses", func(f *folder) {
			f.check = func(context.Context, string) error { return errors.New("page 7 is bad") }
		}, Fail, "etcd", "page 7 is bad"},
		{"no space", func(f *folder) {
			f.database(func(tx *bbolt.Tx) error {
				key, err := proto.Marshal(&etcdserverpb.AlarmMember{MemberID: 1, Alarm: etcdserverpb.AlarmType_NOSPACE})
				f.must(err)
				return tx.Bucket([]byte("alarm")).Put(key, nil)
			})
		}, Fail, "etcd", "NOSPACE"},
		{"a damaged segment", func(f *folder) {
			f.must(os.Truncate(f.path("segments/00000000000000000011-00000000000000000020.log"), 40))
		}, Fail, "segments", "00000000000000000011-00000000000000000020.log"},
		{"a missing segment", func(f *folder) {
			f.must(os.Remove(f.path("segments/00000000000000000011-00000000000000000020.log")))
			f.must(os.Remove(f.path("segments/00000000000000000011-00000000000000000020.payloads")))
		}, Fail, "segments", "00000000000000000021-00000000000000000030.log begins after revision 20, and the one before it ends at 10"},
		{"an empty checkpoint", func(f *folder) { f.write("checkpoints/00000000000000000050.ckpt", nil) }, Fail, "checkpoint", "the newest one is empty"},
		{"an old checkpoint", func(f *folder) {
			old := time.Now().Add(-72 * time.Hour)
			f.must(os.Chtimes(f.path("checkpoints/00000000000000000040.ckpt"), old, old))
		}, Warn, "checkpoint", "older than the newest writes"},
		{"no checkpoint", func(f *folder) { f.must(os.RemoveAll(f.path("checkpoints"))) }, OK, "checkpoint", "there is none yet"},
		{"no checkpoint of a large log", func(f *folder) {
			f.must(os.RemoveAll(f.path("checkpoints")))
			f.write("etcd/member/wal/0.wal", nil)
			f.must(os.Truncate(f.path("etcd/member/wal/0.wal"), largeLog+1))
		}, Warn, "checkpoint", "the next start reads all of it"},
		{"a file half written", func(f *folder) { f.write("segments/rewritten.log.tmp", nil) }, Warn, "leftovers", "rewritten.log.tmp"},
		{"payloads without their log", func(f *folder) { f.write("segments/00000000000000000051-00000000000000000060.payloads", nil) }, Warn, "leftovers", "60.payloads"},
		{"no authority", func(f *folder) { f.must(os.Remove(f.path("pki/ca.key"))) }, Fail, "keys", "pki has no ca.key"},
		{"no signing key", func(f *folder) { f.must(os.Remove(f.path("pki/sa.key"))) }, Warn, "keys", "pki/sa.key is missing"},
		{"a key for all", func(f *folder) { f.must(os.Chmod(f.path("pki/sa.key"), 0o644)) }, Fail, "keys", "other users of this machine may read"},
		{"an expired certificate", func(f *folder) { f.certificate("server", time.Now().Add(-time.Hour)) }, Fail, "certificate", "pki/server.crt has expired"},
		{"a certificate that expires", func(f *folder) { f.certificate("ca", time.Now().Add(10*24*time.Hour)) }, Warn, "certificate", "pki/ca.crt expires"},
		{"no certificate", func(f *folder) { f.write("pki/admin.crt", []byte("x")) }, Fail, "certificate", "pki/admin.crt: it has no certificate"},
		{"a clock behind", func(f *folder) {
			future := time.Now().Add(time.Hour)
			f.must(os.Chtimes(f.path("etcd/member/snap/db"), future, future))
		}, Fail, "clock", "behind the newest file of the log"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFolder(t)
			tc.damage(f)
			r := f.look()
			finds(t, r, tc.level, tc.on, tc.text)
			if tc.level == Fail && r.Worst != Fail {
				t.Errorf("the worst is %s", r.Worst)
			}
		})
	}
}

func TestTheDoctorChangesNothing(t *testing.T) {
	f := newFolder(t)
	f.write("segments/rewritten.log.tmp", []byte("half"))
	list := func() (names []string) {
		f.must(filepath.WalkDir(f.Dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				content, readErr := os.ReadFile(path)
				names, err = append(names, path+": "+string(content)), readErr
			}
			return err
		}))
		return names
	}
	before := list()
	f.look()
	if after := list(); !slices.Equal(before, after) {
		t.Error("files have changed")
	}
}

func TestFindingsOfTheDisk(t *testing.T) {
	for free, want := range map[uint64]Level{10 << 20: Fail, 300 << 20: Warn, 10 << 30: OK} {
		r := new(Report)
		r.disk(free, 256<<20, "df -h")
		finds(t, r, want, "disk", "free")
	}
}

func TestFindingsOfADatabaseThatFills(t *testing.T) {
	for used, want := range map[int64]Level{900: Fail, 800: Fail, 700: Warn, 100: OK} {
		r := new(Report)
		r.database(used, false, 800, "stele serve")
		finds(t, r, want, "etcd", "in use")
	}
}

func TestADirectoryThatIsAbsent(t *testing.T) {
	if _, err := (&directory{Dir: filepath.Join(t.TempDir(), "absent")}).examine(t.Context()); err == nil {
		t.Error("no error")
	}
}
