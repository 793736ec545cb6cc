package etcdlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
)

const mebibyte = 1 << 20

func small(t testing.TB, dir string, quota int64) *etcdlog.Backend {
	t.Helper()
	b, err := etcdlog.Embed(t.Context(), etcdlog.EmbedOptions{Dir: dir, Quota: quota})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// incompressible returns n bytes that are the same for each call with one seed.
func incompressible(n int, seed uint64) []byte {
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	value := make([]byte, n)
	rand.NewChaCha8(key).Read(value)
	return value
}

// chain appends values of a size one after the other, and counts them.
type chain struct {
	b    eventlog.Backend
	n    uint64
	size int
}

func head(n uint64) []byte {
	if n == 0 {
		return nil
	}
	return fmt.Appendf(nil, "head %d", n)
}

func (c *chain) next(t testing.TB, frees bool) error {
	t.Helper()
	a, err := c.b.Append(t.Context(), eventlog.Proposal{
		From: head(c.n), To: head(c.n + 1), At: c.n + 1, Value: incompressible(c.size, c.n+1), Frees: frees})
	if err == nil && !a.Applied {
		t.Fatalf("append %d was not applied", c.n+1)
	}
	if err == nil {
		c.n++
	}
	return err
}

// fill appends until an append is refused, but no more than limit bytes.
func (c *chain) fill(t testing.TB, limit int, frees bool) {
	t.Helper()
	for range limit / c.size {
		if err := c.next(t, frees); errors.Is(err, eventlog.ErrFull) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%d bytes were accepted", limit)
}

// whole checks that the store has these batches and no others.
func (c *chain) whole(t testing.TB, from uint64) {
	t.Helper()
	want := uint64(1)
	for at := uint64(1); at <= c.n; {
		a, err := c.b.Read(t.Context(), at)
		if err != nil || len(a.Batches) == 0 || !bytes.Equal(a.Head, head(c.n)) {
			t.Fatalf("at %d: head %s, %v", at, a.Head, err)
		}
		for _, s := range a.Batches {
			if want == 2 {
				want = from
			}
			if s.First != want || !bytes.Equal(s.Value, incompressible(c.size, s.First)) {
				t.Fatalf("batch %d instead of %d, or with another value", s.First, want)
			}
			want, at = want+1, s.First+1
		}
	}
	if want != c.n+1 {
		t.Errorf("the store ends at %d, not at %d", want-1, c.n)
	}
}

// fileSize returns the size of etcd's database file.
func fileSize(t testing.TB, dir string) int64 {
	t.Helper()
	info, err := os.Stat(databaseFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestAFullLogAcceptsDeletesAndRecovers(t *testing.T) {
	dir := t.TempDir()
	const quota = 24 * mebibyte
	c := &chain{b: small(t, dir, quota), size: 100_000}
	c.fill(t, 2*quota, false)
	u := c.b.Usage()
	if u.Used > u.Limit/100*105 || u.Used < u.Limit/10*9 || u.Limit != quota/100*80 || u.Refused != 1 {
		t.Errorf("the usage of a full log is %+v", u)
	}
	err := c.next(t, false)
	if !eventlog.Refused(err) || !strings.Contains(err.Error(), "19.2 MiB") {
		t.Errorf("a write: %v", err)
	}
	c.size = 1000
	if err := c.next(t, true); err != nil {
		t.Fatalf("a delete: %v", err)
	}
	c.size = 100_000
	if full := c.b.Usage().FullForFreeing(); full != nil {
		t.Error(full)
	}
	c.fill(t, quota, true)
	if size := c.b.Usage().Allocated; size > quota {
		t.Errorf("the database has %d bytes, its quota is %d", size, quota)
	}

	if err := c.b.Trim(t.Context(), c.n-10); err != nil {
		t.Fatal(err)
	}
	if err := c.next(t, false); err != nil {
		t.Errorf("a write after the trim: %v", err)
	}
	if u := c.b.Usage(); u.Full() != nil || u.Used > quota/4 {
		t.Errorf("after the trim: %+v", u)
	}
}

// Ten times the quota is written while the oldest is trimmed: the file stays below the quota, nothing is refused,
// and what is there is read back as it was written.
func TestTheFileStaysBelowItsQuotaForEver(t *testing.T) {
	dir := t.TempDir()
	const quota = 20 * mebibyte
	c := &chain{b: small(t, dir, quota), size: 60_000}
	trimmed := uint64(0)
	for written := 0; written < 10*quota; written += c.size {
		if err := c.next(t, false); err != nil {
			t.Fatalf("after %d bytes: %v, %+v", written, err, c.b.Usage())
		}
		if c.n-trimmed >= 150 {
			trimmed = c.n - 60
			if err := c.b.Trim(t.Context(), trimmed); err != nil {
				t.Fatal(err)
			}
		}
	}
	if size := fileSize(t, dir); size > quota {
		t.Errorf("the file has %d bytes, its quota is %d", size, quota)
	}
	c.whole(t, trimmed+1)
}

// The quota may be lowered, or a long pause of trimming may have let the file grow: the next start shrinks it.
func TestAStartShrinksAFileThatIsMostlyFree(t *testing.T) {
	dir := t.TempDir()
	c := &chain{b: small(t, dir, 64*mebibyte), size: 100_000}
	for range 300 {
		if err := c.next(t, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.b.Trim(t.Context(), c.n-20); err != nil {
		t.Fatal(err)
	}
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	before := fileSize(t, dir)
	c.b = small(t, dir, 24*mebibyte)
	if after := fileSize(t, dir); before < 24*mebibyte || after > 8*mebibyte {
		t.Errorf("the file had %d bytes and has %d", before, after)
	}
	c.whole(t, c.n-19)
	if err := c.next(t, false); err != nil {
		t.Error(err)
	}
}

// Earlier versions gave etcd a quota: at it etcd raises an alarm, which outlives a restart, and refuses all writes.
func TestAFolderThatEtcdHasDeclaredFullComesUp(t *testing.T) {
	dir := t.TempDir()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.Name = dir, "stele"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenClientUrls, cfg.ListenPeerUrls = nil, nil
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.QuotaBackendBytes = 8 * mebibyte
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	client := v3client.New(etcd.Server)
	c := &chain{b: etcdlog.New(client, "/stele", 0), size: 100_000}
	for range 2000 { // etcd looks at the size of the file, which grows ten times a second
		if err = c.next(t, false); err != nil {
			break
		}
	}
	if err == nil || len(etcd.Server.Alarms()) == 0 {
		t.Fatalf("etcd is not full: %v", err)
	}
	answer, err := c.b.Read(t.Context(), 1) // it may have applied what it refused
	if err != nil {
		t.Fatal(err)
	}
	fmt.Sscanf(string(answer.Head), "head %d", &c.n)
	client.Close()
	etcd.Close()

	b := small(t, dir, 9*mebibyte)
	c.b = b
	c.whole(t, 2)
	if err := c.next(t, false); !errors.Is(err, eventlog.ErrFull) {
		t.Errorf("a write: %v", err)
	}
	if err := b.Trim(t.Context(), c.n-5); err != nil {
		t.Fatal(err)
	}
	if err := c.next(t, false); err != nil {
		t.Errorf("a write after the trim: %v", err)
	}
	c.whole(t, c.n-5)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c.b = small(t, dir, 0)
	if err := c.next(t, false); err != nil {
		t.Errorf("a write after another start: %v", err)
	}
}
