package webhooks_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane/planetest"
)

var latencyWrites = flag.Int("webhooks.writes", 400, "writes that are timed beside hanging reviews, and as many without them")

// Writes that a hanging webhook is not about are timed with 60 hanging reviews and without them, in turns. The times are printed: what
// they may be depends on the machine.
func TestLatencyBesideAHangingWebhook(t *testing.T) {
	const rounds, writers, hanging = 10, 4, 60
	h := newHooks(t)
	var over atomic.Pointer[chan struct{}]
	came := make(chan struct{}, hanging)
	h.on("/hang", func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) {
		wait := *over.Load()
		came <- struct{}{}
		<-wait
	})
	o := planetest.Options{Bundle: webhooked(`webhooks: validating: "hang.example.com": {timeoutSeconds: 30, ` + widgetRule + `, objectSelector: matchLabels: hang: "yes", ` + h.client("/hang") + `}`)}
	o.Seats = 8
	p := planetest.Start(t, o)
	config := p.Client("eddie", "editors")
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	c := client.Resource(widgets).Namespace("default")

	var took [2][]time.Duration // without hanging reviews, and with them
	for round := range 2 * rounds {
		beside := round % 2
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		over.Store(&release)
		var stalled sync.WaitGroup
		for i := range beside * hanging {
			w := widget(fmt.Sprintf("hangs-%d-%d", round, i), `{}`)
			w.SetLabels(map[string]string{"hang": "yes"})
			stalled.Go(func() { _, _ = c.Create(ctx, w, metav1.CreateOptions{}) })
		}
		for range beside * hanging {
			<-came
		}
		took[beside] = append(took[beside], timedCreates(t, c, round, writers, *latencyWrites/rounds/writers)...)
		cancel()
		stalled.Wait()
		close(release)
	}
	for i, name := range []string{"no reviews", fmt.Sprint(hanging, " hanging reviews")} {
		all := slices.Sorted(slices.Values(took[i]))
		t.Logf("%d creates by %d writers beside %s: p50 %v, p99 %v, max %v", len(all), writers, name, all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
}

// timedCreates has several writers create n objects each, and returns how long each create took.
func timedCreates(t *testing.T, c dynamic.ResourceInterface, round, writers, n int) []time.Duration {
	took := make([][]time.Duration, writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for i := range n {
				began := time.Now()
				if _, err := c.Create(t.Context(), widget(fmt.Sprintf("w-%d-%d-%d", round, writer, i), `{}`), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
				took[writer] = append(took[writer], time.Since(began))
			}
		})
	}
	all.Wait()
	return slices.Concat(took...)
}
