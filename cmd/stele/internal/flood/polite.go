package flood

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Polite is what a client was answered that sends ten gets and one update a second.
type Polite struct {
	mu   sync.Mutex
	Took []time.Duration // of all requests
	Errs []error
}

// RunPolite sends the requests of a polite client for some time, to an object that exists. An update is a
// merge patch. It sends each at its time,
// whether or not the former ones have been answered.
func RunPolite(ctx context.Context, config *rest.Config, object string, lasts time.Duration) (*Polite, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	databases := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"}).Namespace("default")
	p := &Polite{}
	var all sync.WaitGroup
	const gets = 10
	ticker := time.NewTicker(time.Second / gets)
	defer ticker.Stop()
	for n := range int(lasts.Seconds() * gets) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		all.Go(func() {
			p.time(func() error {
				_, err := databases.Get(ctx, object, metav1.GetOptions{})
				return err
			})
		})
		if n%gets == 0 {
			all.Go(func() {
				p.time(func() error {
					_, err := databases.Patch(ctx, object, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"parameters":{"n":"%d"}}}`, n), metav1.PatchOptions{})
					return err
				})
			})
		}
	}
	all.Wait()
	return p, nil
}

func (p *Polite) time(request func() error) {
	began := time.Now()
	err := request()
	took := time.Since(began)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Took = append(p.Took, took)
	if err != nil {
		p.Errs = append(p.Errs, err)
	}
}
