package members

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Options for [Open].
type Options struct {
	// Endpoints are the client URLs of the members.
	Endpoints []string
	// CAFile has the authorities of the members' certificates; the system's if empty. CertFile and KeyFile have the
	// certificate of this client. All are PEM.
	CAFile, CertFile, KeyFile string
	// Username and PasswordFile are for clusters that authenticate users by passwords. All endpoints must then use TLS.
	Username, PasswordFile string
	// PlainHTTP allows endpoints without TLS that are not addresses of this machine.
	PlainHTTP bool
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

const (
	// openFor is how long Open waits for a member that answers, and settleFor how long for the others.
	openFor, settleFor = 10 * time.Second, 2 * time.Second
	// askEvery is how often each member is asked for its status, and askAgain how often while it does not answer.
	askEvery, askAgain = 2 * time.Second, 300 * time.Millisecond
	// askFor is how long an answer may take.
	askFor = 2 * time.Second
	// Connections that carry nothing for keepAlive are tested.
	keepAlive, keepAliveTimeout = 5 * time.Second, 3 * time.Second
)

// Cluster is the connections to the members of a cluster. It is safe for concurrent use.
type Cluster struct {
	log     *slog.Logger
	client  *clientv3.Client
	members []*member
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	asking  sync.WaitGroup

	mu       sync.Mutex
	id       uint64 // of the cluster; 0 until a member has answered
	current  *member
	timeouts int           // writes in a row that were not answered in time
	changed  chan struct{} // closed and replaced when a member becomes usable, or stops to be
}

// member is the connection to one member.
type member struct {
	url    string
	conn   *grpc.ClientConn
	kv     etcdserverpb.KVClient
	watch  etcdserverpb.WatchClient
	lease  etcdserverpb.LeaseClient
	status etcdserverpb.MaintenanceClient
	login  *login // nil without a user
	http   *http.Client
	// connections counts the connections that were made.
	connections atomic.Uint64
	askNow      chan struct{} // with capacity 1

	// The rest is guarded by Cluster.mu.
	verified   uint64 // the connection on which the member said that it belongs to the cluster; 0 if none
	down       error  // why the member is not used; nil if it is
	told       string // the reason that was logged
	foreign    bool   // it belongs to another cluster
	asked      bool   // it was asked at least once
	failed     chan struct{}
	last       *etcdserverpb.StatusResponse // nil before the first
	answered   time.Time                    // when last was asked for
	clock      clock                        // zero before it was read
	clockAsked bool                         // it was tried to read it
	distance   time.Duration                // how long its status takes, smoothed
}

// Open connects to a cluster. It returns an error if no member answers within some seconds, if members belong to different
// clusters, if credentials are refused, or if a member's version is too old.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &Cluster{log: o.Log, changed: make(chan struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, endpoint := range o.Endpoints {
		m, err := dial(endpoint, o)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.members = append(c.members, m)
	}
	c.client = c.newClient()
	for _, m := range c.members {
		c.asking.Go(func() { c.keepAsking(m) })
		c.asking.Go(func() { c.keepReadingClock(m) })
	}
	if err := c.opened(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// check returns an error for options that cannot work.
func (o *Options) check() error {
	if len(o.Endpoints) == 0 {
		return errors.New("no endpoint of etcd is given")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("a client certificate for etcd needs both its file and that of its key")
	}
	if (o.Username == "") != (o.PasswordFile == "") {
		return errors.New("a user of etcd needs both its name and a file with its password")
	}
	seen := map[string]bool{}
	for _, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "":
			return fmt.Errorf("%q is not an endpoint of etcd: want http://HOST:PORT or https://HOST:PORT", endpoint)
		case seen[u.Host]:
			return fmt.Errorf("the endpoint %s is given twice", endpoint)
		case u.Scheme == "http" && (o.CAFile != "" || o.CertFile != ""):
			return fmt.Errorf("the endpoint %s does not use TLS, but files for TLS are given: write https://%s", endpoint, u.Host)
		case u.Scheme == "http" && o.Username != "":
			return fmt.Errorf("the endpoint %s does not use TLS, so the password of etcd's user would be sent in plain text: write https://%s", endpoint, u.Host)
		case u.Scheme == "http" && !o.PlainHTTP && !isLoopback(u.Hostname()):
			return fmt.Errorf("the endpoint %s does not use TLS: whoever is on the network between could read and change the whole log; write https://%s, or give --etcd-plain-http", endpoint, u.Host)
		}
		seen[u.Host] = true
	}
	_, err := tlsConfig(o, "")
	return err
}

// isLoopback reports whether a host is an address of this machine that the network does not reach. Other names are not resolved.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// dial returns a connection to a member, which is made in the background.
func dial(endpoint string, o Options) (*member, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	m := &member{url: endpoint, askNow: make(chan struct{}, 1), failed: make(chan struct{})}
	transport := &http.Transport{IdleConnTimeout: askEvery}
	m.http = &http.Client{Transport: transport}
	secure := insecure.NewCredentials()
	if u.Scheme == "https" {
		config, err := tlsConfig(&o, u.Hostname())
		if err != nil {
			return nil, err
		}
		secure, transport.TLSClientConfig = credentials.NewTLS(config), config.Clone()
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithStatsHandler(&sentHandler{m}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
	}
	if o.Username != "" {
		m.login = &login{user: o.Username, file: o.PasswordFile}
		options = append(options, grpc.WithUnaryInterceptor(m.login.unary), grpc.WithStreamInterceptor(m.login.stream))
	}
	if m.conn, err = grpc.NewClient("dns:///"+u.Host, options...); err != nil {
		return nil, fmt.Errorf("etcd member %s: %w", endpoint, err)
	}
	m.kv, m.watch = etcdserverpb.NewKVClient(m.conn), etcdserverpb.NewWatchClient(m.conn)
	m.lease, m.status = etcdserverpb.NewLeaseClient(m.conn), etcdserverpb.NewMaintenanceClient(m.conn)
	return m, nil
}

// opened waits until a member can be used, and for some time until all have answered.
func (c *Cluster) opened(ctx context.Context) error {
	until, soon := time.After(openFor), time.After(settleFor)
	patient := true
	for {
		usable, asked, changed, err := c.found()
		if err != nil {
			return err
		}
		if usable && (asked || !patient) {
			return nil
		}
		select {
		case <-changed:
		case <-soon:
			patient = false
		case <-until:
			return c.unreachable()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// found returns whether a member can be used, whether all were asked, and what prevents the use of the cluster for good.
func (c *Cluster) found() (usable, asked bool, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked = true
	var refused, wrong error // why one member cannot be used, and why none may be
	for _, m := range c.members {
		asked = asked && m.asked && m.clockAsked
		usable = usable || m.usable()
		switch {
		case m.foreign || errors.As(m.down, new(*versionError)):
			wrong = m.down
		case isFinal(m.down):
			refused = m.down
		}
	}
	if wrong == nil && asked && !usable {
		wrong = refused
	}
	return usable, asked, c.changed, wrong
}

// unreachable returns why no member can be used.
func (c *Cluster) unreachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reasons []string
	for _, m := range c.members {
		if m.down != nil {
			reasons = append(reasons, m.down.Error())
		} else {
			reasons = append(reasons, "etcd member "+m.url+" does not answer")
		}
	}
	return fmt.Errorf("no member of the etcd cluster can be used: %s", strings.Join(reasons, "; "))
}

// Client returns a client that uses the current member. Only its KV, Watcher and Lease may be used.
func (c *Cluster) Client() *clientv3.Client { return c.client }

// Close closes all connections. Requests in progress end with an error.
func (c *Cluster) Close() error {
	c.cancel()
	c.asking.Wait()
	var errs []error
	if c.client != nil {
		if err := c.client.Close(); !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	for _, m := range c.members {
		m.http.CloseIdleConnections()
		errs = append(errs, m.conn.Close())
	}
	return errors.Join(errs...)
}

// usable reports whether requests may be sent to a member. The caller holds Cluster.mu.
func (m *member) usable() bool {
	return m.down == nil && m.verified > 0 && m.verified == m.connections.Load()
}

// pick returns the member for the next request: the current one, or else another that is usable and not in others; nil if
// there is none. changed is closed when that may be different.
func (c *Cluster) pick(except func(*member) bool) (m *member, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.usable() && !except(c.current) {
		return c.current, c.changed
	}
	for _, other := range c.members {
		if other.usable() && !except(other) && (m == nil || other.distance < m.distance) {
			m = other
		}
	}
	return m, c.changed
}

// worked makes a member that has answered the current one.
func (c *Cluster) worked(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeouts = 0
	if c.current != m && m.usable() {
		if old := c.current; old != nil {
			c.log.Debug("requests go to another member of etcd", "from", old.url, "to", m.url)
			old.ask()
		}
		c.current = m
	}
}

// fail records why a member is not used for now, and asks it again soon.
func (c *Cluster) fail(m *member, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setDown(m, err)
	m.ask()
}

// setDown records why a member is not used, or that it is used if err is nil. The caller holds c.mu.
func (c *Cluster) setDown(m *member, err error) {
	was := m.down
	m.down = err
	switch reason := fmt.Sprint(err); {
	case err == nil && m.told != "":
		m.told = ""
		c.log.Warn("a member of etcd answers again", "member", m.url)
	case err != nil && m.told == "" && c.ctx.Err() == nil:
		m.told = reason
		c.log.Warn("a member of etcd is not used for now", "member", m.url, "reason", reason)
	}
	if was == nil && err != nil {
		close(m.failed)
		m.failed = make(chan struct{})
	}
	c.wake()
}

// wake wakes those who wait for a change. The caller holds c.mu.
func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// ask makes the next question for the member's status come at once.
func (m *member) ask() {
	select {
	case m.askNow <- struct{}{}:
	default:
	}
}
