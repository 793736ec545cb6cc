package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
)

// sample is the metrics of a server at a moment.
type sample struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

// readSample reads the metrics of a server.
func readSample(ctx context.Context, config *rest.Config) (*sample, error) {
	text, err := client.Read(ctx, config, "/metrics", nil)
	if err != nil {
		return nil, readable(err, "/metrics", `nonResourceURLs: ["/metrics"], verbs: ["get"]`)
	}
	return parseSample(time.Now(), text)
}

// readable adds to the error of a request what to do about it.
func readable(err error, path, rule string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nTo allow it, bind the user to a role of the policy with the rule {%s}; `stele who-can get %s` lists who may", err, rule, path)
	case apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%w\nThe server is overloaded and refuses your requests too: ask again as a member of system:masters, who never wait, or give your user a flow schema of the level exempt", err)
	}
	return err
}

// parseSample parses metrics in Prometheus' text format.
func parseSample(at time.Time, text []byte) (*sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the server's answer to /metrics cannot be read: %w", err)
	}
	if len(families) == 0 {
		return nil, errors.New("the server's answer to /metrics is empty: is it a control plane of stele?")
	}
	return &sample{at: at, families: families}, nil
}

// eachSeries calls visit for each series of a gauge or counter, with the values of labels.
func (s *sample) eachSeries(name string, visit func(value float64, labels []string), labels ...string) {
	for _, m := range s.families[name].GetMetric() {
		visit(valueOf(m), labelsOf(m, labels))
	}
}

// sum adds up the series of a gauge or counter. It reports false if the server does not have it.
func (s *sample) sum(name string) (sum float64, known bool) {
	for _, m := range s.families[name].GetMetric() {
		sum += valueOf(m)
	}
	return sum, s.families[name] != nil
}

func valueOf(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}

// labelsOf returns the values of the named labels; "" for one that a series does not have.
func labelsOf(m *dto.Metric, names []string) []string {
	values := make([]string, len(names))
	for i, name := range names {
		for _, l := range m.GetLabel() {
			if l.GetName() == name {
				values[i] = l.GetValue()
			}
		}
	}
	return values
}

// histogram counts observations: of each bucket those up to its bound, which are in the next ones too.
type histogram struct {
	bounds []float64
	counts []float64
	total  float64
}

// histograms adds up the series of a histogram that have the same value of a label.
func (s *sample) histograms(name, label string) map[string]*histogram {
	all := map[string]*histogram{}
	for _, m := range s.families[name].GetMetric() {
		key := labelsOf(m, []string{label})[0]
		h := all[key]
		if h == nil {
			h = &histogram{}
			all[key] = h
		}
		h.add(m.GetHistogram(), 1)
	}
	return all
}

// add adds the counts of a histogram with the same buckets, times a factor.
func (h *histogram) add(o *dto.Histogram, factor float64) {
	h.total += factor * float64(o.GetSampleCount())
	for i, b := range o.GetBucket() {
		if i == len(h.bounds) {
			h.bounds, h.counts = append(h.bounds, b.GetUpperBound()), append(h.counts, 0)
		}
		h.counts[i] += factor * float64(b.GetCumulativeCount())
	}
}

// subtract returns what was observed after an earlier sample.
func (h *histogram) subtract(earlier *histogram) *histogram {
	d := &histogram{bounds: h.bounds, counts: append([]float64(nil), h.counts...), total: h.total}
	if earlier == nil || earlier.total > h.total || len(earlier.counts) > len(d.counts) { // the server has restarted
		return d
	}
	d.total -= earlier.total
	for i, c := range earlier.counts {
		d.counts[i] -= c
	}
	return d
}

// quantile returns the value below which a share of the observations is, interpolated within its bucket. less is set if
// it is in the first bucket: the value is then that bucket's bound. It returns NaN if there are no observations, and
// infinity if the value is beyond the last bound.
func (h *histogram) quantile(q float64) (value float64, less bool) {
	if h.total <= 0 {
		return math.NaN(), false
	}
	rank := q * h.total
	for i, c := range h.counts {
		if c < rank {
			continue
		}
		switch {
		case i == 0:
			return h.bounds[0], true
		case math.IsInf(h.bounds[i], 1):
			return h.bounds[i], false
		}
		below := h.counts[i-1]
		return h.bounds[i-1] + (h.bounds[i]-h.bounds[i-1])*(rank-below)/(c-below), false
	}
	return math.Inf(1), false
}
