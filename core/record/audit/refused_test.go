package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/record/audit"
)

// got returns how many requests a sink has answered, and what it has taken.
func (s *sink) got() (calls int, ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, slices.Clone(s.ids)
}

func auditID(r audit.Record) string { return r.Event.Meta.GetRequest().GetAuditId() }

// A request of which the sink rejects some or all lines does not prove that it takes the last one.
func TestALineThatIsWhollyRejectedProvesNothing(t *testing.T) {
	for _, n := range []int{1, 2} { // lines of the rejected request
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{}
			s.set(func(_ context.Context, records []audit.Record) error {
				if slices.Contains([]string{"id-1", "id-2"}[:n], auditID(records[0])) {
					return &audit.PartlyRefused{Records: 1, Answer: "400 too old"}
				}
				return fmt.Errorf("%w: 400", audit.ErrRefused)
			})
			_, stop := run(t, f.options(s))
			f.append(n)
			time.Sleep(5 * time.Second)
			f.append(3)
			time.Sleep(20 * time.Minute)
			f.append(1)
			time.Sleep(20 * time.Minute)
			if aside := asideIn(t, f); !slices.Equal(aside, []string{"id-1", "id-2"}[:n]) {
				t.Errorf("set aside are %v", aside)
			}
			stop()
		})
	}
}

// A sink that takes a part of a batch and is down then does not get that part again.
func TestWhatASinkHasTakenOfABatchIsNotSentAgain(t *testing.T) {
	for name, first := range map[string]error{
		"taken":           nil,
		"partly rejected": &audit.PartlyRefused{Records: 2, Answer: "400 too old"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{}
			received := map[string]int{}
			var mu sync.Mutex // of received and down
			down := true
			s.set(func(_ context.Context, records []audit.Record) error {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case len(records) > 5:
					return audit.ErrTooLarge
				case auditID(records[0]) == "id-1":
					for _, r := range records {
						received[auditID(r)]++
					}
					return first
				case down:
					return errors.New("down")
				}
				for _, r := range records {
					received[auditID(r)]++
				}
				return nil
			})
			f.append(10)
			feeder, stop := run(t, f.options(s))
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			mu.Lock()
			if len(received) != 5 || feeder.Health() == nil {
				t.Errorf("%s: received are %v; %v", name, received, feeder.Health())
			}
			down = false
			mu.Unlock()
			time.Sleep(2 * time.Minute)
			stop()
			for n := 1; n <= f.n; n++ {
				if got := received[fmt.Sprint("id-", n)]; got != 1 {
					t.Errorf("%s: id-%d is sent %d times", name, n, got)
				}
			}
			if aside := asideIn(t, f); first != nil && !slices.Equal(aside, []string{"id-1", "id-2", "id-3", "id-4", "id-5"}) {
				t.Errorf("%s: set aside are %v", name, aside)
			}
		})
	}
}

// While the file of refused lines cannot be written, neither they nor a line that the sink takes are sent again.
func TestTheFileOfRefusedLinesCannotBeWritten(t *testing.T) {
	for name, answer := range map[string]error{
		"rejected": &audit.PartlyRefused{Records: 1, Answer: "400 too old"},
		"refused":  fmt.Errorf("%w: 400", audit.ErrRefused),
	} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{}
			file := filepath.Join(f.dir, "fake.refused.jsonl")
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
			feeder, stop := run(t, f.options(s))
			f.append(1)
			time.Sleep(5 * time.Second)
			s.set(func(_ context.Context, records []audit.Record) error {
				if slices.ContainsFunc(records, func(r audit.Record) bool { return auditID(r) == "id-2" }) {
					return answer
				}
				return nil
			})
			f.append(1)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			calls, _ := s.got()
			if err := feeder.Health(); err == nil || !strings.Contains(err.Error(), "cannot be set aside") {
				t.Errorf("%s: %v", name, err)
			}
			f.append(1)
			time.Sleep(time.Hour)
			synctest.Wait()
			if now, _ := s.got(); now != calls {
				t.Errorf("%s: %d requests in an hour", name, now-calls)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			now, ids := s.got()
			if aside := asideIn(t, f); !slices.Equal(aside, []string{"id-2"}) || now != calls+1 || ids[len(ids)-1] != "id-3" {
				t.Errorf("%s: set aside are %v, sent %v in %d more requests", name, aside, ids, now-calls)
			}
			stop()
		})
	}
}

// The same if it is the only request that the sink answers so.
func TestARejectedLineOfABatchProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		s.set(func(_ context.Context, records []audit.Record) error {
			if len(records) == 1 && auditID(records[0]) == "id-3" {
				return &audit.PartlyRefused{Records: 1, Answer: "400 too old"}
			}
			return fmt.Errorf("%w: 400", audit.ErrRefused)
		})
		f.append(3)
		feeder, stop := run(t, f.options(s))
		time.Sleep(20 * time.Minute)
		if aside := asideIn(t, f); len(aside) > 0 || feeder.Health() == nil {
			t.Errorf("set aside are %v; %v", aside, feeder.Health())
		}
		stop()
	})
}
