package past_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Who activates a policy hears which kinds show more of their past from then on: of those that
// are served, and of those that were once and come back under the same name.
func TestAnActivationTellsWhatItOpens(t *testing.T) {
	open := strings.ReplaceAll(windowed(""), " @stele(sensitive)", "")
	kept := open + "\n" + `bundle: history: windows: "vaults.example.com": "5m"`
	without, _, _ := strings.Cut(windowed(""), `bundle: teams: t: kinds: "vaults.example.com"`)
	without = strings.ReplaceAll(without, `resources: ["secrets", "vaults"]`, `resources: ["secrets", "*"]`)
	const opened = `vaults.example.com: vaults held secrets, and showed what they were in the last 5m: whoever may read them may now see all that they ever were; to keep that say history: window: \"5m\"`
	for name, tc := range map[string]struct {
		before []string
		policy string
		want   bool
	}{
		"no secrets any more":                     {nil, open, true},
		"no secrets any more, and the window":     {nil, kept, false},
		"the same, and then no window":            {[]string{open}, windowed(""), false},
		"the kind is gone":                        {nil, without, false},
		"the kind comes back, without secrets":    {[]string{without}, open, true},
		"the kind comes back as it was":           {[]string{without}, windowed(""), false},
		"the kind comes back, and has its window": {[]string{without}, kept, false},
	} {
		t.Run(name, func(t *testing.T) {
			var store memlog.Store
			p := planetest.StartReplica(t, store.Open(nil), 0)
			p.Bootstrap(t, windowed(""))
			write(p, t, planetest.VaultsPath, "a")
			p.Must(t, 200, "DELETE", planetest.VaultsPath+"/a", "")
			for _, policy := range tc.before {
				p.Activate(t, policy)
			}
			for _, query := range []string{"?dryRun=All", ""} {
				a := p.Must(t, 201, "POST", planetest.PoliciesPath+query, planetest.PolicyBody(t, tc.policy, nil))
				said := strings.Join(a.Header.Values("Warning"), "\n")
				if strings.Contains(said, opened) != tc.want || strings.Contains(said, "vaults") != tc.want || tc.want && !strings.Contains(said, "bundle.cue:") {
					t.Errorf("%q: it warns %q, want it to: %v", query, said, tc.want)
				}
			}
		})
	}
}
