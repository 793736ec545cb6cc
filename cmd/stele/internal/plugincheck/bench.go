package plugincheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/plugins/conformance"
)

func pluginBenchCommand() *cobra.Command {
	var o pluginOptions
	var tableFile string
	callers, lasting := []int{1, 8, 64}, 3*time.Second
	cmd := &cobra.Command{
		Use:   "bench PROGRAM",
		Short: "Measure a plugin: calls per second and latency",
		Long: `Bench measures the calls of a plugin over the same connection as in serve. Serve itself is faster,
because it caches the decisions of authorizers and combines equal requests.`,
		Example: `  stele plugin bench ./change-window --table decisions.yaml`,
		Args:    usage.Exactly("PROGRAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lasting <= 0 || slices.ContainsFunc(callers, func(n int) bool { return n < 1 }) {
				return usage.Errorf("--duration and --callers must be more than 0")
			}
			var table *conformance.Table
			if tableFile != "" {
				var err error
				if table, err = conformance.ReadTable(tableFile); err != nil {
					return err
				}
			}
			p, subject, err := o.open(cmd, args[0], table)
			if err != nil {
				return err
			}
			i, err := subject.Configured(cmd.Context())
			if err != nil {
				return err
			}
			defer i.Close()
			var rows []benchRow
			for _, n := range callers {
				took, elapsed, err := measure(cmd.Context(), i, subject.Questions(p.Services), n, lasting)
				if err != nil {
					return err
				}
				at := func(percent int) time.Duration {
					return took[(len(took)-1)*percent/100].Round(time.Microsecond)
				}
				rows = append(rows, benchRow{n, float64(len(took)) / elapsed.Seconds(), at(50).Seconds(), at(99).Seconds(), at(100).Seconds()})
			}
			if o.Format != "" {
				return o.Document(cmd, map[string]any{"plugin": p.GetName(), "version": p.GetVersion(), "sha256": p.sha256, "measurements": rows})
			}
			return showBench(cmd.OutOrStdout(), rows)
		},
	}
	o.addFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&tableFile, "table", "", "decision table, with requests, configuration and secrets")
	f.IntSliceVar(&callers, "callers", callers, "numbers of concurrent callers, one measurement each")
	usage.DurationVar(f, &lasting, "duration", lasting, "how long each measurement takes")
	_ = cmd.MarkFlagFilename("table", "yaml", "yml", "json")
	return cmd
}

// benchRow is a measurement; latencies are in seconds.
type benchRow struct {
	Callers        int     `json:"callers"`
	CallsPerSecond float64 `json:"callsPerSecond"`
	P50            float64 `json:"p50"`
	P99            float64 `json:"p99"`
	Max            float64 `json:"max"`
}

// showBench prints measurements as a table.
func showBench(out io.Writer, rows []benchRow) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "callers\tcalls/s\tp50\tp99\tmax\t")
	latency := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%.0f\t%v\t%v\t%v\t\n", r.Callers, r.CallsPerSecond, latency(r.P50), latency(r.P99), latency(r.Max))
	}
	return w.Flush()
}

// measure lets several callers call a plugin, and returns the sorted durations of the calls.
func measure(ctx context.Context, i *conformance.Instance, questions []proto.Message, callers int, lasting time.Duration) (took []time.Duration, elapsed time.Duration, err error) {
	each, errs := make([][]time.Duration, callers), make([]error, callers)
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for n := caller; errs[caller] == nil; n++ {
				asked := time.Now()
				if n > caller && asked.Sub(began) >= lasting {
					return
				}
				errs[caller] = i.Ask(ctx, questions[n%len(questions)])
				each[caller] = append(each[caller], time.Since(asked))
			}
		})
	}
	wg.Wait()
	elapsed = time.Since(began)
	took = slices.Concat(each...)
	slices.Sort(took)
	return took, elapsed, errors.Join(errs...)
}
