package etcdlog_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
	"stele.dev/stele/eventlog/logtest"
)

// eventually calls f until it returns nil, for up to a minute.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// writer appends events to a log, one at a time.
type writer struct {
	t       *testing.T
	backend *etcdlog.Backend
	log     *eventlog.Log
	tip     eventlog.Head
	n       int
}

func newWriter(t *testing.T, o etcdlog.DialOptions) *writer {
	t.Helper()
	w := &writer{t: t, backend: dialed(t, o)}
	var err error
	if w.log, err = eventlog.Open(t.Context(), w.backend, eventlog.Options{}); err != nil {
		t.Fatal(err)
	}
	batches := all(t, w.log)
	w.tip = batches[len(batches)-1].Head()
	return w
}

func all(t *testing.T, log *eventlog.Log) (batches []*eventlog.Batch) {
	t.Helper()
	for at := log.Start(); ; at = batches[len(batches)-1].Head() {
		more, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			return batches
		}
		batches = append(batches, more...)
	}
}

// append appends one event, and returns how long that took.
func (w *writer) append(ctx context.Context) (time.Duration, error) {
	w.t.Helper()
	began := time.Now()
	won, newer, err := w.log.Append(ctx, w.tip, eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(w.t, fmt.Sprint(w.n))}))
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	if won == nil || len(newer) > 0 {
		w.t.Fatalf("somebody else has written: %v, %v", won, newer)
	}
	w.tip = won.Head()
	w.n++
	return took, nil
}

// must appends one event, which must succeed.
func (w *writer) must() time.Duration {
	w.t.Helper()
	took, err := w.append(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return took
}

// current returns the number of the member to which requests go.
func (w *writer) current() int {
	for i, m := range w.backend.Members() {
		if m.Current {
			return i
		}
	}
	return -1
}

func TestFailover(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	w := newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	reader := dialed(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	for range 20 {
		w.must()
	}
	for _, fault := range []struct {
		name      string
		do, after func(i int)
	}{
		{"the member is paused", c.Pause, c.Resume},
		{"the member is killed", c.Kill, c.Restart},
		{"the member is cut off from the others", c.Cut, c.Heal},
		{"the client is cut off from the member", c.CutClients, c.HealClients},
		{"the connections break", func(i int) { c.Kill(i); c.Restart(i) }, func(int) {}},
	} {
		at := w.current()
		fault.do(at)
		longest := w.must()
		began := time.Now()
		if a, err := reader.Read(t.Context(), w.tip.Revision); err != nil || len(a.Batches) == 0 {
			t.Errorf("%s: another client reads %v, %v", fault.name, a, err)
		}
		read := time.Since(began)
		for range 20 {
			longest = max(longest, w.must())
		}
		t.Logf("%s: an append took %v, a read %v", fault.name, longest, read)
		if longest > 30*time.Second || read > 30*time.Second {
			t.Errorf("%s: an append took %v, a read %v", fault.name, longest, read)
		}
		fault.after(at)
		eventually(t, func() error {
			if down := w.backend.Members()[at].Down; down != "" {
				return errors.New(down)
			}
			return nil
		})
	}
	if batches := all(t, w.log); len(batches) != w.n+1 {
		t.Errorf("the log has %d batches, want %d", len(batches), w.n+1)
	}
}

func TestLostQuorum(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	w := newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	w.must()
	c.Kill(0)
	c.Kill(1)
	eventually(t, func() error { // the first append may have been sent, and is then unknown
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if _, err := w.append(ctx); !errors.Is(err, eventlog.ErrUnavailable) {
			return fmt.Errorf("without a quorum: %w, want ErrUnavailable", err)
		}
		return nil
	})
	if _, err := w.backend.Read(t.Context(), 1); err == nil {
		t.Error("a read succeeds")
	}
	c.Kill(2)
	if _, err := w.append(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("without any member: %v, want ErrUnavailable", err)
	}
	for i := range 3 {
		c.Restart(i)
	}
	eventually(t, func() error { // one that was sent before may have been applied
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		batches, err := w.log.CatchUp(ctx, w.tip)
		if n := len(batches); n > 0 {
			w.tip = batches[n-1].Head()
		}
		return err
	})
	w.must()
}

func TestNoSpace(t *testing.T) {
	t.Parallel()
	const quota = 256 << 20 // much more than the steps of 16 MiB in which its file grows
	c := etcdtest.Start(t, 1, etcdtest.Quota(quota))
	b := dialed(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	at := uint64(1)
	var head []byte
	write := func() error {
		p := eventlog.Proposal{From: head, To: fmt.Appendf(nil, "head %d", at), At: at, Value: make([]byte, 1<<20)}
		a, err := b.Append(t.Context(), p)
		if err == nil && !a.Applied {
			t.Fatalf("%d is not applied: %s", at, a.Head)
		}
		if err == nil {
			head, at = p.To, at+1
		}
		return err
	}
	var err error
	for err == nil {
		err = write()
	}
	if !errors.Is(err, eventlog.ErrFull) {
		t.Fatalf("over the limit: %v, want ErrFull", err)
	}
	if used := int64(at) << 20; used < quota/2 || used > quota*9/10 {
		t.Errorf("refused after %d bytes, the quota is %d", used, quota)
	}
	if err := b.Trim(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { compact(t, c); return write() })

	admin := c.Client(0)
	for i := 0; err == nil || !strings.Contains(err.Error(), "database space exceeded"); i++ {
		if i > 400 {
			t.Fatal("etcd has no quota")
		}
		_, err = admin.Put(t.Context(), fmt.Sprintf("/other/%d", i), strings.Repeat("x", 1<<20))
	}
	if err := write(); !errors.Is(err, eventlog.ErrFull) {
		t.Fatalf("after the alarm: %v, want ErrFull", err)
	}
	if a, err := b.Read(t.Context(), at); err != nil || string(a.Head) != string(head) || len(a.Batches) > 0 {
		t.Fatalf("a refused append was applied: %s, %v", a.Head, err)
	}
	if _, err := admin.Delete(t.Context(), "/other/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	newest, err := admin.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Compact(t.Context(), newest.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Defragment(t.Context(), admin.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, write)
}

// Somebody who compacts does not disturb those who wait for the next batch.
func TestCompactionByOthers(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	w := newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	follower, err := eventlog.Open(t.Context(), dialed(t, etcdlog.DialOptions{Endpoints: c.Endpoints()}), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for at := w.tip; w.n < 10; {
		c.CutClients(0) // the follower's watch lags behind what is compacted
		for range 3 {
			if _, err := c.Client(0).Put(t.Context(), "/other", ""); err != nil {
				t.Fatal(err)
			}
		}
		compact(t, c)
		c.HealClients(0)
		w.must()
		batches, err := follower.Next(t.Context(), at)
		if err != nil || len(batches) == 0 {
			t.Fatal(batches, err)
		}
		at = batches[len(batches)-1].Head()
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	t.Parallel()
	one, two := etcdtest.Start(t, 1), etcdtest.Start(t, 1)
	for name, tc := range map[string]struct {
		options etcdlog.DialOptions
		want    string
	}{
		"two clusters":           {etcdlog.DialOptions{Endpoints: append(one.Endpoints(), two.Endpoints()...)}, "give the endpoints of one cluster"},
		"no endpoint":            {etcdlog.DialOptions{}, "no endpoint"},
		"no URL":                 {etcdlog.DialOptions{Endpoints: []string{"localhost:2379"}}, "want http://HOST:PORT"},
		"twice":                  {etcdlog.DialOptions{Endpoints: append(one.Endpoints(), one.Endpoints()...)}, "given twice"},
		"no TLS":                 {etcdlog.DialOptions{Endpoints: []string{strings.Replace(one.Endpoints()[0], "http:", "https:", 1)}}, "TLS fails"},
		"too old":                {etcdlog.DialOptions{Endpoints: []string{serveStatus(t, "3.4.30")}}, "3.5.6 or newer is needed"},
		"nobody there":           {etcdlog.DialOptions{Endpoints: []string{"http://" + closedPort(t)}}, "connection refused"},
		"a root prefix":          {etcdlog.DialOptions{Endpoints: one.Endpoints(), Prefix: "/"}, "is no prefix"},
		"a strange one":          {etcdlog.DialOptions{Endpoints: one.Endpoints(), Prefix: "/a b"}, "is no prefix"},
		"no password":            {etcdlog.DialOptions{Endpoints: one.Endpoints(), Username: "x"}, "password"},
		"no key":                 {etcdlog.DialOptions{Endpoints: one.Endpoints(), CertFile: "x"}, "key"},
		"a password without TLS": {etcdlog.DialOptions{Endpoints: one.Endpoints(), Username: "x", PasswordFile: "x"}, "in plain text: write https://127.0.0.1:"},
		"a password without TLS, which is allowed":      {etcdlog.DialOptions{Endpoints: []string{"http://192.0.2.1:1"}, PlainHTTP: true, Username: "x", PasswordFile: "x"}, "in plain text"},
		"another machine without TLS":                   {etcdlog.DialOptions{Endpoints: append(one.Endpoints(), "http://192.0.2.1:1")}, "http://192.0.2.1:1 does not use TLS"},
		"a name without TLS":                            {etcdlog.DialOptions{Endpoints: []string{"http://etcd.example:1"}}, "give --etcd-plain-http"},
		"another machine without TLS, which is allowed": {etcdlog.DialOptions{Endpoints: []string{"http://localhost.invalid:1"}, PlainHTTP: true}, "localhost.invalid"},
		"no such CA file":                               {etcdlog.DialOptions{Endpoints: []string{"https://127.0.0.1:1"}, CAFile: filepath.Join(t.TempDir(), "none")}, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := etcdlog.Dial(t.Context(), tc.options)
			if err == nil {
				b.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want a line with %q", err, tc.want)
			}
		})
	}
}

// serveStatus serves the status of a member of a version.
func serveStatus(t *testing.T, version string) (endpoint string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(s, &oldMember{version: version})
	go s.Serve(listener)
	t.Cleanup(s.Stop)
	return "http://" + listener.Addr().String()
}

type oldMember struct {
	etcdserverpb.UnimplementedMaintenanceServer
	version string
}

func (m *oldMember) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 1}, Leader: 1, Version: m.version}, nil
}

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	put := func(key, value string) {
		if _, err := c.Client(0).Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("/registry/pods/default/web", "{}")
	put("/elsewhere/head", "something")
	put("/config", "x")
	put("/app/setting", "x")
	newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints(), Prefix: "/team/one"}).must()
	newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints(), Prefix: "/outer"}).must()
	newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints(), Prefix: "/outer2/inner"}).must()
	newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints(), Prefix: "/outer2"}).must()
	for prefix, want := range map[string]string{
		"/registry":    "/registry/pods/default/web",
		"/elsewhere":   "was not written by stele",
		"/app":         "/app/setting",
		"/team":        "/team/one/head",
		"/outer/inner": "inside that of another log",
		"/outer2":      "/outer2/inner/head",
		"/team/one":    "",
		"/team/one/":   "",
		"/outer":       "",
		"/new":         "",
		"/conf":        "",
	} {
		before, err := c.Client(0).Get(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		err = dialed(t, etcdlog.DialOptions{Endpoints: c.Endpoints(), Prefix: prefix}).CheckKeys(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", prefix, err, want)
		}
		after, err := c.Client(0).Get(t.Context(), "x")
		if err != nil || after.Header.Revision != before.Header.Revision {
			t.Errorf("%s: something was written: %v", prefix, err)
		}
	}
}

func TestUsersAndPasswords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(name string) string { return filepath.Join(dir, name) }
	servers := newAuthority(t, "servers")
	cert, key := servers.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}})
	servers.write(cert, key, inDir("server.crt"), inDir("server.key"))
	servers.write(servers.cert, nil, inDir("servers.crt"), "")
	c := etcdtest.Start(t, 1, etcdtest.TLS(inDir("server.crt"), inDir("server.key"), ""))
	admin := c.Client(0)
	for _, err := range []error{
		second(admin.UserAdd(t.Context(), "root", "r")), second(admin.UserGrantRole(t.Context(), "root", "root")),
		second(admin.UserAdd(t.Context(), "stele", "first")), second(admin.RoleAdd(t.Context(), "log")), second(admin.UserGrantRole(t.Context(), "stele", "log")),
		second(admin.RoleGrantPermission(t.Context(), "log", "/stele/", clientv3.GetPrefixRangeEnd("/stele/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.AuthEnable(t.Context())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := inDir("password")
	o := etcdlog.DialOptions{Endpoints: c.Endpoints(), CAFile: inDir("servers.crt"), Username: "stele", PasswordFile: file}
	password := func(text string) {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		password, user, want string
	}{
		"a wrong password": {"wrong", "stele", "does not know the user"},
		"a wrong user":     {"first", "nobody", "does not know the user"},
		"no user":          {"first", "", "wants a user"},
	} {
		password(tc.password)
		o := o
		if o.Username = tc.user; tc.user == "" {
			o.PasswordFile = ""
		}
		if b, err := etcdlog.Dial(t.Context(), o); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v, want %q", name, b, err, tc.want)
		}
	}
	password("first")
	w := newWriter(t, o)
	w.must()
	if err := w.backend.CheckKeys(t.Context()); err != nil {
		t.Error(err)
	}
	other := o
	other.Prefix = "/other"
	if err := dialed(t, other).CheckKeys(t.Context()); err == nil || !strings.Contains(err.Error(), "etcdctl role grant-permission") {
		t.Errorf("a prefix that the user may not read: %v", err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(servers.cert)
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: "r", TLS: &tls.Config{RootCAs: trusted}, DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	password("second")
	if _, err := root.UserChangePassword(t.Context(), "stele", "second"); err != nil {
		t.Fatal(err)
	}
	w.must()
	c.Kill(0) // it forgets its tokens
	c.Restart(0)
	eventually(t, func() error { _, err := w.append(t.Context()); return err })
}

func second[T any](_ T, err error) error { return err }

// A replica whose clock differs by minutes from those of the members writes nothing, until its clock is right.
func TestClockThatIsOff(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 3)
	var ahead atomic.Int64
	b := dialed(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	eventually(t, func() error {
		if _, known := b.OthersTime(); !known {
			return errors.New("the members' time is not known")
		}
		return nil
	})
	good := newWriter(t, etcdlog.DialOptions{Endpoints: c.Endpoints()})
	log, err := eventlog.Open(t.Context(), b, eventlog.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	bad := &writer{t: t, backend: b, log: log, tip: good.tip}
	for _, off := range []time.Duration{-time.Hour, -6 * time.Minute, 6 * time.Minute, time.Hour} {
		ahead.Store(int64(off))
		if _, err := bad.append(t.Context()); !eventlog.Refused(err) || !strings.Contains(err.Error(), "this machine's clock is") {
			t.Errorf("with a clock that is off by %v: %v", off, err)
		}
		if d := log.ClockOff() - off; d.Abs() > 30*time.Second {
			t.Errorf("a clock that is off by %v is said to be off by %v", off, d+off)
		}
	}
	good.must()
	if ahead := good.log.Ahead(); ahead > 0 {
		t.Errorf("log time is %v ahead", ahead)
	}
	ahead.Store(int64(time.Minute))
	bad.tip = good.tip
	bad.must()
}
