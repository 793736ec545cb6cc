package etcdtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is how long the members have to start or to agree on a leader, on a slow machine.
const patience = time.Minute

// Option changes the settings of all members of a cluster.
type Option func(*settings)

// Quota sets the size of the database in bytes at which etcd raises the alarm NOSPACE.
func Quota(bytes int64) Option { return func(s *settings) { s.Quota = bytes } }

// MaxRequest sets the size in bytes of the largest request that etcd accepts.
func MaxRequest(bytes uint) Option { return func(s *settings) { s.MaxRequest = bytes } }

// Tick sets the interval of heartbeats; the default is 50 ms. An election begins when ten are missing.
func Tick(every time.Duration) Option { return func(s *settings) { s.Tick = every } }

// Fsync makes the members sync their files, which they do not by default.
func Fsync() Option { return func(s *settings) { s.Fsync = true } }

// TLS makes the members use a certificate for their clients. If clientCAFile is not empty, clients must have certificates of
// that authority.
func TLS(certFile, keyFile, clientCAFile string) Option {
	return func(s *settings) { s.CertFile, s.KeyFile, s.ClientCAFile = certFile, keyFile, clientCAFile }
}

// Cluster is an etcd cluster. Its methods are safe for concurrent use. They fail the test if something does not work that is
// not a fault which the test has asked for.
type Cluster struct {
	tb      testing.TB
	members []*member
	peers   map[[2]int]*link // [from, to]

	mu     sync.Mutex
	routes []*Route // the first is that of Endpoints
}

type member struct {
	settings settings
	folder   string // the working folder, with the sockets
	admin    *clientv3.Client

	mu      sync.Mutex
	process *exec.Cmd // nil if it does not run
	stdin   io.Closer
	log     bytes.Buffer // what all its processes wrote to stderr; guarded by logMu
	logMu   sync.Mutex
}

// Write implements io.Writer for the member's stderr.
func (m *member) Write(b []byte) (int, error) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return m.log.Write(b)
}

// Start starts a cluster of n members and waits until all have joined it. It ends with the test.
func Start(tb testing.TB, n int, options ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb, peers: map[[2]int]*link{}}
	sockets, err := os.MkdirTemp("", "etcd") // a short name: the names of sockets are limited
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(sockets); err != nil {
			tb.Error(err)
		}
	})
	data := tb.TempDir()
	var names []string
	for i := range n {
		m := &member{folder: filepath.Join(sockets, fmt.Sprint(i))}
		m.settings = settings{Name: fmt.Sprintf("m%d", i), Token: sockets, Dir: filepath.Join(data, fmt.Sprint(i)), Tick: 50 * time.Millisecond}
		for _, o := range options {
			o(&m.settings)
		}
		u := unixURL(socketOf(m.settings.Name))
		names = append(names, m.settings.Name+"="+u.String())
		if err := os.Mkdir(m.folder, 0o700); err != nil {
			tb.Fatal(err)
		}
		c.members = append(c.members, m)
	}
	tb.Cleanup(c.stop)
	c.connectPeers()
	for i, url := range c.Route().Endpoints() {
		m := c.members[i]
		m.settings.ClientURL, m.settings.Cluster = url, strings.Join(names, ",")
		if m.admin, err = m.dial(); err != nil {
			tb.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range c.members {
		all.Go(func() { c.start(i, saysReady) })
	}
	all.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return c
}

// connectPeers makes the links between the members.
func (c *Cluster) connectPeers() {
	for i, from := range c.members {
		for j, to := range c.members {
			if i == j {
				continue
			}
			listener, err := net.Listen("unix", filepath.Join(from.folder, socketOf(to.settings.Name)))
			if err != nil {
				c.tb.Fatal(err)
			}
			c.peers[[2]int{i, j}] = newLink(listener, filepath.Join(to.folder, peerSocket))
		}
	}
}

// dial returns a client that reaches the member without a proxy.
func (m *member) dial() (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(m.folder, clientSocket)}, Logger: zap.NewNop()}
	if s := m.settings; s.CertFile != "" {
		cfg.TLS = &tls.Config{InsecureSkipVerify: true} // the socket is in a folder of this test
		if s.ClientCAFile != "" {
			own, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
			if err != nil {
				return nil, err
			}
			cfg.TLS.Certificates = []tls.Certificate{own}
		}
	}
	return clientv3.New(cfg)
}

// start starts a member's process and waits until it prints what is expected.
func (c *Cluster) start(i int, until string) {
	m := c.members[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		c.tb.Errorf("etcd member %d is running", i)
		return
	}
	self, err := os.Executable()
	if err != nil {
		c.tb.Error(err)
		return
	}
	text, err := json.Marshal(m.settings)
	if err != nil {
		c.tb.Error(err)
		return
	}
	p := exec.Command(self)
	p.Env = append(os.Environ(), memberVariable+"="+string(text), "GOMAXPROCS=2")
	p.Dir, p.Stderr = m.folder, m
	// A stopped process of a group of its own ends with the test's process: the system hangs up orphaned groups.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := p.StdinPipe() // the member ends when the test's process ends, and this pipe with it
	if err != nil {
		c.tb.Error(err)
		return
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		c.tb.Error(err)
		return
	}
	if err := p.Start(); err != nil {
		c.tb.Error(err)
		return
	}
	m.process, m.stdin = p, stdin
	said := make(chan error, 1)
	go func() {
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadString('\n')
			if line == until || err != nil {
				said <- err
				break
			}
		}
		_, _ = io.Copy(io.Discard, lines)
	}()
	select {
	case err = <-said:
	case <-time.After(patience):
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		c.tb.Errorf("etcd member %d does not start: %v", i, err)
	}
}

// kill ends a member's process, if it runs, and the connections to it.
func (m *member) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill()
	_ = m.process.Wait() // that it was killed
	_ = m.stdin.Close()
	m.process = nil
}

// stop ends everything, and logs what the members wrote if the test has failed.
func (c *Cluster) stop() {
	for i, m := range c.members {
		m.kill()
		if m.admin != nil {
			_ = m.admin.Close()
		}
		if c.tb.Failed() {
			m.logMu.Lock()
			text := m.log.String()
			m.logMu.Unlock()
			c.tb.Logf("etcd member %d:\n%s", i, text[max(0, len(text)-4<<10):])
		}
	}
	for _, l := range c.peers {
		l.close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.routes {
		r.close()
	}
}

// route returns the route of Endpoints.
func (c *Cluster) route() *Route {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes[0]
}

// Endpoints returns the URLs for clients, one for each member.
func (c *Cluster) Endpoints() []string { return c.route().Endpoints() }

// Client returns a client of one member. It reaches the member directly, whatever is cut, and is closed with the cluster.
func (c *Cluster) Client(i int) *clientv3.Client { return c.members[i].admin }

// Kill ends member i at once, like kill -9. What it had written to its files stays.
func (c *Cluster) Kill(i int) { c.members[i].kill() }

// Restart starts member i, which was killed, and waits until it listens. It does not wait for a leader.
func (c *Cluster) Restart(i int) { c.start(i, saysListening) }

// Pause stops member i until Resume: its connections stay open, and it does nothing.
func (c *Cluster) Pause(i int) { c.signal(i, syscall.SIGSTOP) }

// Resume ends a pause.
func (c *Cluster) Resume(i int) { c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, s syscall.Signal) {
	m := c.members[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		c.tb.Errorf("etcd member %d does not run", i)
		return
	}
	if err := m.process.Process.Signal(s); err != nil {
		c.tb.Error(err)
	}
}

// Cut cuts member i off from all others, in both directions. Its clients still reach it.
func (c *Cluster) Cut(i int) { c.setCut(i, true) }

// Heal ends a cut.
func (c *Cluster) Heal(i int) { c.setCut(i, false) }

func (c *Cluster) setCut(i int, cut bool) {
	for ends, l := range c.peers {
		if ends[0] == i || ends[1] == i {
			l.setCut(cut)
		}
	}
}

// CutClients cuts member i off from the clients that use [Cluster.Endpoints].
func (c *Cluster) CutClients(i int) { c.route().Cut(i) }

// HealClients ends a cut of clients.
func (c *Cluster) HealClients(i int) { c.route().Heal(i) }

// Delay delays each direction of the traffic between member i and the clients that use [Cluster.Endpoints].
func (c *Cluster) Delay(i int, d time.Duration) { c.route().Delay(i, d) }

// Leader waits until the members have a leader, and returns its number.
func (c *Cluster) Leader() int {
	c.tb.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if leader := c.leaderNow(); leader >= 0 {
			return leader
		}
	}
	c.tb.Fatal("the etcd cluster has no leader")
	return -1
}

// leaderNow returns the leader of the newest term, or -1. A leader that has been cut off believes for a while that it still
// is one.
func (c *Cluster) leaderNow() int {
	var mu sync.Mutex
	terms := map[int]uint64{} // of the members that believe that they lead
	newest := uint64(0)
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s, err := m.admin.Status(ctx, m.admin.Endpoints()[0])
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			newest = max(newest, s.RaftTerm)
			if s.Leader == s.Header.GetMemberId() {
				terms[i] = s.RaftTerm
			}
		})
	}
	all.Wait()
	maps.DeleteFunc(terms, func(_ int, term uint64) bool { return term < newest })
	for i := range terms {
		return i
	}
	return -1
}

// Save kills all members and copies their files. The function that it returns kills them, puts the copies back and restarts
// all: the cluster has forgotten what was written since, as after a restored snapshot. Save restarts the members, too.
func (c *Cluster) Save() (restore func()) {
	c.tb.Helper()
	saved := c.tb.TempDir()
	c.whileStopped(func(i int) error {
		return os.CopyFS(filepath.Join(saved, fmt.Sprint(i)), os.DirFS(c.members[i].settings.Dir))
	})
	return func() {
		c.whileStopped(func(i int) error {
			if err := os.RemoveAll(c.members[i].settings.Dir); err != nil {
				return err
			}
			if err := os.CopyFS(c.members[i].settings.Dir, os.DirFS(filepath.Join(saved, fmt.Sprint(i)))); err != nil {
				return err
			}
			return os.Chmod(c.members[i].settings.Dir, 0o700)
		})
	}
}

func (c *Cluster) whileStopped(do func(i int) error) {
	c.tb.Helper()
	for _, m := range c.members {
		m.kill()
	}
	for i := range c.members {
		if err := do(i); err != nil {
			c.tb.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range c.members {
		all.Go(func() { c.start(i, saysReady) })
	}
	all.Wait()
}

// Route is a way of clients to the members, with a proxy for each. Clients on different routes can have different distances
// and faults.
type Route struct {
	scheme string
	links  []*link
}

// Route returns a new route, with no delay.
func (c *Cluster) Route() *Route {
	c.tb.Helper()
	r := &Route{scheme: "http"}
	if c.members[0].settings.CertFile != "" {
		r.scheme = "https"
	}
	for _, m := range c.members {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			c.tb.Fatal(err)
		}
		r.links = append(r.links, newLink(listener, filepath.Join(m.folder, clientSocket)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.routes = append(c.routes, r)
	return r
}

// Endpoints returns the URLs of the route, one for each member.
func (r *Route) Endpoints() (urls []string) {
	for _, l := range r.links {
		urls = append(urls, r.scheme+"://"+l.listener.Addr().String())
	}
	return urls
}

// Cut cuts the route to member i: connections stay open, and nothing passes.
func (r *Route) Cut(i int) { r.links[i].setCut(true) }

// Heal ends a cut.
func (r *Route) Heal(i int) { r.links[i].setCut(false) }

// Delay delays each direction of the traffic to member i.
func (r *Route) Delay(i int, d time.Duration) { r.links[i].setDelay(d) }

// Drop ends the connections to member i that are open. New ones can be made.
func (r *Route) Drop(i int) { r.links[i].drop() }

func (r *Route) close() {
	for _, l := range r.links {
		l.close()
	}
}
