package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Oldest is the oldest version of etcd that is used. Members of earlier versions of 3.5 can hold different data after a crash,
// and the etcd project recommends this one as the oldest for production.
const Oldest = "3.5.6"

// versionError reports a member that is too old.
type versionError struct{ url, version string }

func (e *versionError) Error() string {
	return fmt.Sprintf("etcd member %s has version %s; %s or newer is needed, because with older ones members can hold different data after a crash", e.url, e.version, Oldest)
}

// keepAsking asks a member for its status at intervals.
func (c *Cluster) keepAsking(m *member) {
	for {
		again := askEvery
		if err := c.askOnce(m); err != nil {
			again = askAgain
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case <-m.askNow:
			timer.Stop()
			if again == askAgain { // a member that fails is not asked without a pause
				select {
				case <-time.After(askAgain / 3):
				case <-c.ctx.Done():
				}
			}
		case <-c.ctx.Done():
			timer.Stop()
		}
		if c.ctx.Err() != nil {
			return
		}
	}
}

// askOnce asks a member for its status, and decides whether it is used.
func (c *Cluster) askOnce(m *member) error {
	ctx, cancel := context.WithTimeout(c.ctx, askFor)
	defer cancel()
	var answer *etcdserverpb.StatusResponse
	var err error
	var began time.Time
	connection := m.connections.Load()
	for {
		began = time.Now()
		answer, err = m.status.Status(ctx, &etcdserverpb.StatusRequest{})
		if now := m.connections.Load(); err != nil || now == connection {
			break
		} else {
			connection = now
		}
	}
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !m.asked
	m.asked = true
	if err == nil {
		err = c.judge(m, answer)
	} else {
		err = m.describe(err)
	}
	if err != nil {
		c.setDown(m, err)
		c.choose()
		return err
	}
	changed := first || m.down != nil || m.verified != connection
	m.verified, m.last, m.answered = connection, answer, began
	took := time.Since(began)
	if m.distance == 0 {
		m.distance = took
	}
	m.distance += (took - m.distance) / 4
	if changed {
		c.setDown(m, nil)
	}
	c.choose()
	return nil
}

// judge returns why a member cannot be used. The caller holds c.mu.
func (c *Cluster) judge(m *member, s *etcdserverpb.StatusResponse) error {
	id := s.GetHeader().GetClusterId()
	if c.id == 0 {
		c.id = id
	}
	m.foreign = id != c.id
	version, err := semver.NewVersion(s.GetVersion())
	switch {
	case m.foreign:
		return fmt.Errorf("etcd member %s belongs to cluster %x, and the other endpoints to cluster %x: give the endpoints of one cluster", m.url, id, c.id)
	case err != nil || version.LessThan(*semver.New(Oldest)):
		return &versionError{m.url, s.GetVersion()}
	case s.GetIsLearner():
		return fmt.Errorf("etcd member %s is a learner, which cannot vote yet", m.url)
	case s.GetLeader() == 0:
		return fmt.Errorf("etcd member %s knows no leader: less than half of the members reach each other, or an election is going on", m.url)
	}
	return nil
}

// choose makes the leader the current member if it is about as near as the nearest, and else the nearest, if the current one
// is not usable or much farther. The caller holds c.mu.
func (c *Cluster) choose() {
	var nearest, best *member
	for _, m := range c.members {
		if m.usable() && (nearest == nil || m.distance < nearest.distance) {
			nearest = m
		}
	}
	if nearest == nil {
		return
	}
	near := 4*nearest.distance + 5*time.Millisecond
	for _, m := range c.members {
		if m.usable() && m.last.GetLeader() == m.last.GetHeader().GetMemberId() && m.distance <= near {
			best = m
		}
	}
	best = cmp.Or(best, nearest)
	now := c.current
	leads := best.last.GetLeader() == best.last.GetHeader().GetMemberId()
	if now == nil || !now.usable() || now != best && (leads || now.distance > near) {
		c.current = best
	}
}

// describe returns an error of a member in plain words.
func (m *member) describe(err error) error {
	var refused *loginError
	text := status.Convert(err).Message()
	switch code := status.Code(err); {
	case errors.As(err, &refused):
		return fmt.Errorf("etcd member %s: %w", m.url, err)
	case strings.Contains(text, "user name is empty"):
		return &loginError{fmt.Errorf("etcd member %s wants a user: give a user of etcd and a file with its password, or a client certificate", m.url)}
	case strings.Contains(text, "authentication handshake failed"):
		return &tlsError{fmt.Errorf("etcd member %s: TLS fails: %s", m.url, text[strings.Index(text, "authentication handshake failed")+len("authentication handshake failed: "):])}
	case strings.HasPrefix(m.url, "https:") && (strings.Contains(text, "server preface") || strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset by peer")):
		return fmt.Errorf("etcd member %s closes the connection after the TLS handshake: it does not run, or does not accept the client certificate", m.url)
	case strings.Contains(text, "connection refused"):
		return fmt.Errorf("etcd member %s: connection refused", m.url)
	case code == codes.DeadlineExceeded:
		return fmt.Errorf("etcd member %s does not answer within %v", m.url, askFor)
	default:
		return fmt.Errorf("etcd member %s: %s", m.url, text)
	}
}

// loginError reports credentials that etcd refuses, or that cannot be read; tlsError that TLS fails.
type (
	loginError struct{ error }
	tlsError   struct{ error }
)

func (e *loginError) Unwrap() error { return e.error }
func (e *tlsError) Unwrap() error   { return e.error }

// isFinal reports whether it does not help to wait.
func isFinal(err error) bool {
	return errors.As(err, new(*loginError)) || errors.As(err, new(*tlsError)) || errors.As(err, new(*versionError))
}

// Member is what is known of a member.
type Member struct {
	URL     string
	ID      uint64 // 0 before it has answered
	Version string
	Leader  bool // it leads the others
	Current bool // requests go to it
	// Down says why it is not used; empty if it is.
	Down string
	// DBSize is the size of its database in bytes, InUse what of it is used, and Quota its limit, 0 if etcd does not say.
	DBSize, InUse, Quota int64
	// NoSpace is set if it has raised the alarm NOSPACE.
	NoSpace bool
	// Corrupt is set if a member has raised the alarm CORRUPT.
	Corrupt bool
	// Asked is when it was asked for what it answered last; zero before that.
	Asked time.Time
	// Distance is how long it takes to answer.
	Distance time.Duration
}

// Members returns what the members said last, in the order of the endpoints.
func (c *Cluster) Members() (all []Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		s := m.last
		about := Member{URL: m.url, ID: s.GetHeader().GetMemberId(), Version: s.GetVersion(), Current: m == c.current, Distance: m.distance, Asked: m.answered,
			DBSize: s.GetDbSize(), InUse: s.GetDbSizeInUse(), Quota: s.GetDbSizeQuota()}
		about.Leader = s != nil && s.GetLeader() == about.ID
		about.NoSpace, about.Corrupt = hasAlarm(s, etcdserverpb.AlarmType_NOSPACE), hasAlarm(s, etcdserverpb.AlarmType_CORRUPT)
		if m.down != nil {
			about.Down = m.down.Error()
		}
		all = append(all, about)
	}
	return all
}

// hasAlarm reports whether a status names an alarm.
func hasAlarm(s *etcdserverpb.StatusResponse, alarm etcdserverpb.AlarmType) bool {
	return slices.ContainsFunc(s.GetErrors(), func(text string) bool { return strings.Contains(text, alarm.String()) })
}

// ID returns the id of the cluster.
func (c *Cluster) ID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// AskAll asks all members for their status soon.
func (c *Cluster) AskAll() {
	for _, m := range c.members {
		m.ask()
	}
}
