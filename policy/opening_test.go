package policy_test

import (
	"testing"

	"stele.dev/stele/policy/probes"
)

func TestWhatAPolicyOpens(t *testing.T) {
	ofBundle := func(reach string) string {
		return "{\n" + widgets(widgetNames+", "+widgetSchema) + "\nhistory: windows: §\"widgets.a.example.com\": \"" + reach + "\"\n}"
	}
	plain, secret, said := widgets("§"+widgetNames+", "+widgetSchema), widgets(widgetNames+", "+secretive), func(reach string) string {
		return widgets(widgetNames + ", " + secretive + `, history: §window: "` + reach + `"`)
	}
	const (
		secrets = "widgets.a.example.com: widgets held secrets, and showed what they were in the last "
		others  = "widgets.a.example.com: widgets showed what they were in the last "
		all     = ": whoever may read them may now see all that they ever were"
	)
	for name, tc := range map[string]struct{ was, is, want string }{
		"no secrets any more":                         {secret, plain, secrets + "5m" + all + `; to keep that say history: window: "5m"`},
		"no secrets any more, and a window as before": {secret, ofBundle("5m"), ""},
		"no secrets any more, and a wider window":     {secret, ofBundle("6m"), secrets + "5m: whoever may read them may now see what they were in the last 6m"},
		"secrets for ever":                            {secret, said("all"), secrets + "5m" + all},
		"secrets for longer":                          {secret, said("1h"), secrets + "5m: whoever may read them may now see what they were in the last 1h"},
		"secrets for less long":                       {said("1h"), secret, ""},
		"secrets for as long":                         {said("1h"), said("60m"), ""},
		"a window that is not said any more":          {ofBundle("1h"), plain, others + "1h" + all + `; to keep that say history: window: "1h"`},
		"a window for the first time":                 {plain, ofBundle("1h"), ""},
		"what never had one":                          {plain, plain, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := compiled(t, tc.was)
			encoded, _ := before.Form.Encode()
			old, err := probes.Load(encoded)
			if err != nil {
				t.Fatal(err)
			}
			after, at := compiled(t, tc.is)
			got := ""
			for i := range after.Form.Kinds {
				k := &after.Form.Kinds[i]
				for _, was := range old.Kinds() {
					if was.Resource() != k.Resource() {
						continue
					}
					if d := after.Form.Opened(k, was); d != nil {
						if got += d.String(); len(at) > 0 && d.Pos.Line != at[0].Line {
							t.Errorf("it stands at %s, not %s", d.Pos, at[0])
						}
						got = got[len(d.Pos.String()+": "):]
					}
				}
			}
			if got != tc.want {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}
