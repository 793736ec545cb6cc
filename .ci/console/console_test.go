package console

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"sigs.k8s.io/yaml"
)

const (
	databases  = "/apis/example.com/v1/namespaces/default/databases"
	configMaps = "/api/v1/namespaces/default/configmaps"
	secrets    = "/api/v1/namespaces/default/secrets"
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

// The addresses of what most tests look at.
const (
	databasesView = "view=objects&kind=databases.v1.example.com"
	ordersView    = databasesView + "&ns=default&name=orders"
)

// password is in a Secret, and must be in no page.
const password = "hunter2-planted"

func database(name, tier string, gib int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Database","metadata":{"name":%q,"labels":{"app":"shop"}},"spec":{"engine":"postgres-17","owner":"alice@example.com","tier":%q,"storageGiB":%d}}`, name, tier, gib)
}

var (
	recorded    sync.Once
	beforeRobot string // the revision before the robot writes
)

// record writes what the tests look at, once: databases and settings that a robot changes, a refusal, a Secret, a second policy.
func record(t testing.TB) {
	t.Helper()
	recorded.Do(func() {
		pause := func() {
			if *picture != "" {
				time.Sleep(time.Second) // so that the picture shows activity over some time
			}
		}
		for i, name := range []string{"orders", "billing", "carts", "search", "users", "stock", "mail", "reports"} {
			plane.must(t, "alice@example.com", "POST", databases, database(name, "small", 10+5*i))
			pause()
		}
		for i := range 12 {
			plane.must(t, "system:serviceaccount:shop:deployer", "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"settings-%02d"},"data":{"version":"1","notes":"two\nlines\n"}}`, i))
			if i%4 == 0 {
				pause()
			}
		}
		plane.must(t, "", "POST", secrets, fmt.Sprintf(`{"metadata":{"name":"orders-password"},"stringData":{"password":%q}}`, password))
		beforeRobot = revision(plane.must(t, "alice@example.com", "PATCH", databases+"/orders", `{"spec":{"tier":"large"}}`))
		push(t)
		for i := range 12 {
			plane.must(t, "robot", "PATCH", configMaps+fmt.Sprintf("/settings-%02d", i), `{"data":{"version":"2"}}`)
			if i%3 == 0 {
				pause()
			}
		}
		for _, name := range []string{"orders", "billing", "carts", "search"} {
			plane.must(t, "robot", "PATCH", databases+"/"+name, `{"spec":{"tier":"small","replicas":1}}`)
			pause()
		}
		plane.must(t, "robot", "DELETE", databases+"/mail", "")
		if code, text := plane.do(t, "robot", "PATCH", databases+"/users", "", `{"spec":{"storageGiB":100000}}`); code != 422 {
			t.Fatalf("%d %s", code, text)
		}
		pause()
		plane.must(t, "alice@example.com", "PATCH", databases+"/stock", `{"spec":{"storageGiB":64}}`)
		pause()
	})
}

// push puts another policy in force: the quickstart's, with a higher limit.
func push(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "databases.cue")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "4096", "8192", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(stele, "policy", "push", dir, "--kubeconfig", plane.kubeconfig).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// rows returns the cells of the visible rows of the list.
func (p *page) rows() [][]string {
	p.t.Helper()
	return eval[[][]string](p, `[...document.querySelectorAll('.rows .body .row')].map((r) => [...r.children].map((c) => c.textContent))`)
}

// waitForNames waits until the list has names.
func (p *page) waitForNames(want ...string) {
	p.t.Helper()
	text, _ := json.Marshal(want) // strings are always JSON
	p.waitFor(fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('.rows .body .row')].map((r) => r.children[1].textContent)) === JSON.stringify(%s)`, text))
}

// press presses a key, whose name is that of KeyboardEvent.key.
func (p *page) press(key string) {
	p.t.Helper()
	event := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key}
	switch key {
	case "Enter":
		event.Text, event.WindowsVirtualKeyCode = "\r", 13
	case "Escape":
		event.Text, event.WindowsVirtualKeyCode = "", 27
	}
	for _, event.Type = range []input.DispatchKeyEventType{event.Type, input.DispatchKeyEventTypeKeyUp} {
		if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, event); err != nil {
			p.t.Fatal(err)
		}
		event.Text = ""
	}
}

func TestAListFollowsWhatIsWritten(t *testing.T) {
	record(t)
	p := open(t)
	all := []string{"billing", "carts", "orders", "reports", "search", "stock", "users"}
	p.waitForNames(all...)
	plane.must(t, "alice@example.com", "POST", databases, database("wishes", "small", 10))
	p.waitForNames(append(slices.Clone(all), "wishes")...)
	plane.must(t, "alice@example.com", "PATCH", databases+"/wishes", `{"spec":{"tier":"medium"}}`)
	p.waitForText("medium")
	plane.must(t, "alice@example.com", "DELETE", databases+"/wishes", "")
	p.waitForNames(all...)
	p.at(databasesView + "&labels=" + url.QueryEscape("app=none"))
	p.waitForText("There are none.")
	p.at(databasesView + "&fields=" + url.QueryEscape("metadata.name=carts"))
	p.waitForNames("carts")
	p.at(databasesView + "&fields=" + url.QueryEscape("spec.none=1"))
	p.waitForText("field label not supported")
}

func TestKeysFilterMoveOpenAndStep(t *testing.T) {
	record(t)
	p := open(t)
	p.waitForNames("billing", "carts", "orders", "reports", "search", "stock", "users")
	p.press("/")
	p.waitFor(`document.activeElement.id === 'search'`)
	p.press("r")
	p.waitForNames("billing", "carts", "orders", "reports", "search", "stock", "users") // in the engine
	p.press("e")
	p.press("p")
	p.waitForNames("reports")
	p.press("Escape")
	p.at(databasesView)
	p.waitForNames("billing", "carts", "orders", "reports", "search", "stock", "users")
	for _, key := range []string{"j", "j", "j", "k"} {
		p.press(key)
	}
	p.waitFor(`document.querySelector('.row.cursor')?.children[1].textContent === 'carts'`)
	p.press("Enter")
	p.waitFor(`location.hash.includes('name=carts')`)
	p.waitForText("engine: postgres-17")
	p.press("u")
	p.waitForNames("billing", "carts", "orders", "reports", "search", "stock", "users")
	p.press("[")
	p.waitFor(`/at=\d+/.test(location.hash)`)
	at := eval[int](p, `Number(location.hash.match(/at=(\d+)/)[1])`)
	p.press("[")
	p.waitFor(fmt.Sprintf(`Number(location.hash.match(/at=(\d+)/)?.[1]) === %d`, at-1))
	p.press("]")
	p.waitFor(fmt.Sprintf(`Number(location.hash.match(/at=(\d+)/)?.[1]) === %d`, at))
	p.press("n")
	p.waitFor(`!location.hash.includes('at=')`)
	for i, view := range []string{"objects", "incident", "access", "policy", "health"} {
		p.press(strconv.Itoa(i + 1))
		p.waitFor(fmt.Sprintf("location.hash.includes('view=%s')", view))
	}
	p.press("?")
	p.waitFor(`document.querySelector('dialog').open`)
}

// table is a list of the server as a table.
type table struct {
	Rows []struct {
		Cells  []any `json:"cells"`
		Object struct {
			Metadata struct{ Name, Namespace string }
		}
	}
}

func TestEachMomentShowsWhatTheServerShowed(t *testing.T) {
	record(t)
	p := open(t)
	p.waitForText("billing")
	last, err := strconv.Atoi(revision(plane.must(t, "", "GET", databases, "")))
	if err != nil {
		t.Fatal(err)
	}
	first := 14 // what the server writes at its start is before
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kinds := []struct{ id, path string }{{"databases.v1.example.com", "/apis/example.com/v1/databases"}, {"configmaps.v1.", "/api/v1/configmaps"}}
	objects := 0
	for range 50 {
		at, kind := first+random.IntN(last-first+1), kinds[random.IntN(len(kinds))]
		p.at(fmt.Sprintf("view=objects&wide=1&kind=%s&at=%d", kind.id, at))
		p.waitFor(fmt.Sprintf(`document.querySelector('.rows')?.dataset.moment === '%d' && document.querySelector('h1').textContent.startsWith('%s')`, at, kind.path[strings.LastIndex(kind.path, "/")+1:]))
		code, text := plane.do(t, "", "GET", fmt.Sprintf("/at/%d%s", at, kind.path), asTable, "")
		var then table
		if err := json.Unmarshal(text, &then); err != nil || code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		want := [][]string{}
		for _, row := range then.Rows {
			cells := []string{row.Object.Metadata.Namespace}
			for _, c := range row.Cells {
				if c == nil {
					c = ""
				}
				cells = append(cells, fmt.Sprint(c))
			}
			want = append(want, cells)
		}
		if got := p.rows(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s at %d:\n%q\nwant\n%q", kind.path, at, got, want)
		}
		if len(then.Rows) == 0 {
			continue
		}
		objects++
		row := then.Rows[random.IntN(len(then.Rows))].Object.Metadata
		p.at(fmt.Sprintf("view=objects&kind=%s&at=%d&ns=%s&name=%s", kind.id, at, row.Namespace, row.Name))
		p.waitFor(fmt.Sprintf(`document.querySelector('.pane')?.dataset.moment === '%d' && document.querySelector('h1').textContent.endsWith('%s') && document.querySelector('.yaml')`, at, row.Name))
		var shown map[string]any
		if err := yaml.Unmarshal([]byte(eval[string](p, `[...document.querySelectorAll('.yaml .line')].map((l) => l.textContent).join('\n') + '\n'`)), &shown); err != nil {
			t.Fatal(err)
		}
		resource := strings.Replace(kind.path, kind.path[strings.LastIndex(kind.path, "/"):], "/namespaces/"+row.Namespace+kind.path[strings.LastIndex(kind.path, "/"):], 1)
		object := plane.must(t, "", "GET", fmt.Sprintf("/at/%d%s/%s", at, resource, row.Name), "")
		delete(object["metadata"].(map[string]any), "managedFields")
		if got, want := fmt.Sprint(shown), fmt.Sprint(object); got != want {
			t.Errorf("%s at %d:\n%s\nwant\n%s", row.Name, at, got, want)
		}
	}
	if objects < 10 {
		t.Errorf("only %d objects were compared", objects)
	}
}

func TestAMomentIsDraggedTypedAndInTheAddress(t *testing.T) {
	record(t)
	p := open(t)
	p.at(databasesView)
	p.waitForText("billing")
	p.waitFor(`document.querySelectorAll('.legend .key').length > 2`)
	// The slider is at the left end: the first change of the log. No policy was in force then.
	drag := func(to int) {
		p.run(fmt.Sprintf(`{ const s = document.getElementById('moment-slider'); s.value = %d; s.dispatchEvent(new Event('input', { bubbles: true })); }`, to))
	}
	drag(0)
	p.waitForText("no policy was in force at revision 1")
	p.waitForText("Choose a later moment.")
	drag(10_000)
	p.waitFor(`!location.hash.includes('at=')`)
	typed := func(text string) {
		p.run(fmt.Sprintf(`{ const f = document.getElementById('moment'); f.value = %q; f.form.requestSubmit(); }`, text))
	}
	typed(beforeRobot)
	p.waitFor(`location.hash.includes('at=` + beforeRobot + `')`)
	p.waitForNames("billing", "carts", "mail", "orders", "reports", "search", "stock", "users")
	if got := eval[string](p, `document.getElementById('moment-slider').getAttribute('aria-valuetext')`); !strings.HasPrefix(got, "revision "+beforeRobot+", ") {
		t.Errorf("a screen reader is told %q", got)
	}
	for text, want := range map[string]string{"nonsense": "is not a moment", "999999": "Revision 999999 does not exist: the newest is ", "0": "Revisions begin with 1", "2999-01-01": "in the future"} {
		typed(text)
		p.waitFor(fmt.Sprintf(`document.querySelector('.moment [role=alert]')?.textContent.includes(%q)`, want))
	}
	typed("0s")
	p.waitFor(`/at=\d+/.test(location.hash) && !location.hash.includes('at=` + beforeRobot + `')`)
	// Another tab with the address shows the same.
	p.do(chromedp.Navigate(p.origin + "/#" + databasesView + "&at=" + beforeRobot))
	p.do(chromedp.Reload())
	p.waitForNames("billing", "carts", "mail", "orders", "reports", "search", "stock", "users")
}

// Numbers of 64 bits, and decimals, are shown as they were sent.
func TestNumbersAreExact(t *testing.T) {
	p := open(t)
	got := eval[string](p, `Promise.all([import('./server.js'), import('./yaml.js')]).then(([s, y]) => y.lines(s.parse('{"a":9007199254740993,"b":[1.10,1e3],"c":{"d":-5}}', true)).map((l) => l.key + ' ' + l.text).join('|'))`)
	if want := "a 9007199254740993|b | 1.10| 1e3|c |d -5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestThenAndNow(t *testing.T) {
	record(t)
	p := open(t)
	p.at(databasesView + "&compare=1&at=" + beforeRobot)
	p.waitFor(`document.querySelectorAll('.is-changed').length === 5 && document.querySelectorAll('.is-removed').length === 1`)
	p.waitFor(`document.querySelector('.is-removed').textContent.includes('mail')`)
	p.at(ordersView + "&tab=compare&at=" + beforeRobot)
	p.waitForText("2 fields differ.")
	got := eval[[][]string](p, `[...document.querySelectorAll('.compare tbody tr')].map((r) => [...r.children].map((c) => c.textContent))`)
	if want := `[[spec.replicas 0 1] [spec.tier large small]]`; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	p.at(databasesView + "&ns=default&name=mail&tab=compare&at=" + beforeRobot)
	p.waitForText("It is deleted since.")
}

func TestHistoryAndBlameNameUserRuleAndLine(t *testing.T) {
	record(t)
	p := open(t)
	p.at(ordersView + "&tab=history")
	p.waitFor(`document.querySelectorAll('.versions > li').length === 3`)
	first := eval[string](p, `document.querySelector('.versions > li').innerText`)
	for _, want := range []string{"admin as robot", "updated", "spec.tier", "large", "small", "system:masters"} {
		if !strings.Contains(first, want) {
			t.Errorf("the newest version lacks %q: %s", want, first)
		}
	}
	p.at(ordersView + "&tab=history&at=" + beforeRobot)
	p.waitFor(`document.querySelector('.versions .selected')?.textContent.startsWith('` + beforeRobot + `')`)
	p.at(ordersView + "&tab=blame")
	p.waitFor(`document.querySelectorAll('.blame tbody tr').length > 5`)
	rows := eval[[]string](p, `[...document.querySelectorAll('.blame tbody tr')].map((r) => r.innerText)`)
	for field, want := range map[string]string{"spec.tier": "admin as robot", "spec.engine": "admin as alice@example.com", "spec.backups.keepDays": "databases.cue:26", "metadata.uid": "set by the server"} {
		if !slices.ContainsFunc(rows, func(r string) bool { return strings.Contains(r, field) && strings.Contains(r, want) }) {
			t.Errorf("%s is not blamed on %s: %q", field, want, rows)
		}
	}
	// The line is a link to the policy.
	p.run(`[...document.querySelectorAll('.blame .source a')].find((a) => a.textContent === 'databases.cue:26').click()`)
	p.waitFor(`document.querySelector('.cue .is-chosen')?.textContent.includes('keepDays')`)
}

func TestSecretValuesAreHidden(t *testing.T) {
	record(t)
	p := open(t)
	view := "view=objects&kind=secrets.v1.&ns=default&name=orders-password"
	for tab, ready := range map[string]string{
		"yaml": `document.querySelector('.yaml')`, "history": `document.querySelector('.versions li')`, "blame": `document.querySelector('.blame tbody tr')`,
	} {
		p.at(view + "&tab=" + tab)
		p.waitFor(ready)
		p.waitForText("(hidden)")
		if text := eval[string](p, "document.documentElement.outerHTML"); strings.Contains(text, password) || strings.Contains(text, "aHVudGVyMi1wbGFudGVk") {
			t.Errorf("%s shows the password", tab)
		}
	}
}

func TestAnIncident(t *testing.T) {
	record(t)
	p := open(t)
	p.at("view=incident&actor=robot")
	p.waitForText("17 of 17 objects")
	p.waitForText("stele undo --actor robot --since 1 --dry-run")
	p.waitFor(`document.querySelectorAll('.lane').length === 1 && document.querySelectorAll('.lane .m').length >= 5`)
	p.waitForText("must be at least 1 and at most 8192") // what was refused
	p.run(`[...document.querySelectorAll('.rows .row')].find((r) => r.textContent.includes('databases default/orders')).click()`)
	p.waitFor(`document.querySelector('.one')?.innerText.includes('spec.tier')`)
	markdown := eval[string](p, `(async () => {
		const { select, toMarkdown } = await import('./incident.js'), { activity } = await import('./activity.js');
		return toMarkdown(select(activity.changes, { actor: 'robot' }), [], { actor: 'robot', since: '14' }, 'https://x');
	})()`)
	for _, want := range []string{"| admin as robot | 17 |", "deleted | databases.example.com default/mail", "stele undo --actor robot --since 14 --dry-run"} {
		if !strings.Contains(markdown, want) {
			t.Errorf("the Markdown lacks %q:\n%s", want, markdown)
		}
	}
	command := eval[string](p, `import('./incident.js').then((m) => m.undoCommand({ actor: "o'neil; reboot", since: '1; reboot', until: '$(reboot)' }))`)
	if want := `stele undo --actor 'o'\''neil; reboot' --since 1 --dry-run`; command != want {
		t.Errorf("the command is %s, want %s", command, want)
	}
	if lines := strings.Count(markdown, "\n"); lines < 25 {
		t.Errorf("the Markdown has %d lines", lines)
	}
	p.at("view=incident&actor=robot&since=" + beforeRobot + "&resource=databases.example.com")
	p.waitForText("5 of 5 objects")
	// The command that the page shows is one that the program takes.
	command = eval[string](p, `document.querySelector('.undo code').textContent`)
	args := append(strings.Fields(command)[1:], "--kubeconfig", plane.kubeconfig)
	if out, err := exec.Command(stele, args...).CombinedOutput(); err != nil || !strings.Contains(string(out), "orders") {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}

func TestWhoCanAndWhyARequestIsRefused(t *testing.T) {
	record(t)
	p := open(t)
	p.at("view=access&verb=delete&kind=databases.v1.example.com&ns=default&name=orders&as=eve")
	p.waitForText("group team-data")
	p.waitForText("data/bindings/developers")
	p.waitForText("Refused")
	p.waitFor(`document.querySelector('.stages .refused')?.innerText.startsWith('authorization')`)
	p.at("view=access&verb=get&kind=databases.v1.example.com&ns=default&name=orders&from=8")
	p.waitForText("From revision 8 to")
}

func TestThePoliciesAreBrowsedOverTime(t *testing.T) {
	record(t)
	p := open(t)
	p.at("view=policy&file=databases.cue&line=14")
	p.waitFor(`document.querySelector('.cue .is-chosen')?.textContent.includes('<=8192')`)
	p.at("view=policy&file=databases.cue&line=14&at=" + beforeRobot)
	p.waitFor(`document.querySelector('.cue .is-chosen')?.textContent.includes('<=4096')`)
	if links := eval[int](p, `document.querySelectorAll('.policies ul:first-of-type a').length`); links != 2 {
		t.Errorf("%d activations", links)
	}
}

func TestHealthShowsChecksReplicasAndSeats(t *testing.T) {
	p := open(t)
	p.at("view=health")
	for _, want := range []string{"✓ ping", "workload-low", "answers", "exempt"} {
		p.waitForText(want)
	}
}

// hostile is content that would run, hide or reorder what a page shows that takes it for more than text.
var hostile = []string{
	`<img src=x onerror="document.title='run'">`, `<script>document.title='run'</script>`, `"><svg onload=document.title='run'>`, `javascript:document.title='run'`,
	"\u202egnihton\u202c", "\u2066isolated\u2069", "\u200bzero\u200b", "a\u0000b", "\u001b[31mred", "${document.title='run'}", "{{7*7}}", "</div></body>",
}

func TestHostileContentIsText(t *testing.T) {
	record(t)
	data := map[string]string{"large": strings.Repeat("x", 1_000_000)}
	for i, text := range hostile {
		data[fmt.Sprintf("h%d", i)] = text
	}
	content, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "hostile", "annotations": map[string]string{"example.com/note": strings.Join(hostile, " ")}}, "data": data})
	if err != nil {
		t.Fatal(err)
	}
	plane.must(t, "<img src=x onerror=document.title='run'>\u202etobor", "POST", configMaps, string(content))
	p := open(t)
	view := "view=objects&kind=configmaps.v1.&ns=default&name=hostile"
	for _, address := range []string{view, view + "&tab=history", view + "&tab=blame", view + "&tab=compare&at=" + beforeRobot, "view=objects&kind=configmaps.v1.&wide=1", "view=incident", "view=incident&actor=" + url.QueryEscape(hostile[0]),
		"view=objects&kind=" + url.QueryEscape(hostile[0]), "view=objects&kind=configmaps.v1.&ns=" + url.QueryEscape(hostile[1]) + "&name=" + url.QueryEscape(hostile[4]), "view=policy&file=" + url.QueryEscape(hostile[0]), "view=" + url.QueryEscape(hostile[0]) + "&at=" + url.QueryEscape(hostile[2])} {
		p.at(address)
		p.waitFor(`document.querySelector('.rows, .yaml, .versions, .blame tbody tr, .compare, .cue, .problem') && !document.body.innerText.includes('Reading…')`)
		if bad := eval[bool](p, `document.title === 'run' || !!document.querySelector('#page img, #page script, #page [onerror], #page [onload], #page a[href^="javascript:"]')`); bad {
			t.Errorf("%s: the content is not text", address)
		}
		if found := eval[string](p, `document.body.innerText.match(/[\u202a-\u202e\u2066-\u2069\u200b\u0000\u001b]/)?.[0] ?? ''`); found != "" {
			t.Errorf("%s: the page has the character %q", address, found)
		}
	}
	p.at(view)
	for _, want := range []string{hostile[0], hostile[9], "⟨U+202E⟩gnihton⟨U+202C⟩", "(1,000,000 characters)"} {
		p.waitFor(fmt.Sprintf(`[...document.querySelectorAll('.yaml .line')].some((l) => l.textContent.includes(%s) || l.textContent.includes(JSON.stringify(%s).slice(1, -1)))`, quoted(want), quoted(want)))
	}
	plane.must(t, "", "DELETE", configMaps+"/hostile", "")
}

// quoted returns a text as a literal of JavaScript.
func quoted(text string) string {
	literal, _ := json.Marshal(text) // a string is always JSON
	return string(literal)
}

func TestAUserWithFewRightsSeesNoOtherNames(t *testing.T) {
	record(t)
	p := open(t, "--as", "eve")
	p.waitForText("as eve")
	for address, missing := range map[string]string{
		databasesView:                                                  "list databases.example.com",
		databasesView + "&ns=default":                                  "", // eve may read these
		ordersView + "&tab=history":                                    "list changes.log.stele.dev",
		"view=objects&kind=configmaps.v1.":                             "list configmaps",
		"view=objects&kind=secrets.v1.&ns=default":                     "list secrets",
		"view=objects&kind=configmaps.v1.&ns=default&name=settings-03": "get configmaps",
		"view=incident":                                                "list changes.log.stele.dev",
		"view=access":                                                  "create resourceaccessreviews.policy.stele.dev",
		"view=policy":                                                  "list policies.policy.stele.dev",
		"view=health":                                                  "list replicas.log.stele.dev",
		databasesView + "&ns=default&at=" + beforeRobot:                "",
	} {
		p.at(address)
		if missing == "" {
			p.waitForText("billing")
		} else {
			p.waitFor(fmt.Sprintf(`[...document.querySelectorAll('main .problem, .time .problem')].some((e) => e.textContent.includes(%q))`, "The right that is missing: "+missing))
		}
		text := eval[string](p, "document.querySelector('#page').textContent")
		for _, name := range []string{"settings-0", "orders-password", "robot", "alice@", "hunter2"} {
			if strings.Contains(text, name) && !strings.Contains(address, name) && name != "alice@" {
				t.Errorf("%s: eve sees %s", address, name)
			}
		}
	}
}

// axe returns the serious and critical findings of axe-core.
func (p *page) axe() []string {
	p.t.Helper()
	if !eval[bool](p, "typeof axe === 'object'") {
		text, err := os.ReadFile(filepath.Join("testdata", "axe.min.js"))
		if err != nil {
			p.t.Fatal(err)
		}
		p.run(string(text) + "\n;0")
	}
	return eval[[]string](p, `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations'] }).then((r) =>
		r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical').flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? n.all[0]?.message ?? ''))))`)
}

func TestNobodyIsShutOut(t *testing.T) {
	record(t)
	p := open(t)
	for _, size := range []struct {
		width, height int64
		scheme        string
	}{{1280, 800, "light"}, {400, 800, "dark"}} {
		if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: size.scheme}}}); err != nil {
			t.Fatal(err)
		}
		p.do(chromedp.EmulateViewport(size.width, size.height))
		for address, ready := range map[string]string{
			databasesView + "&compare=1&at=" + beforeRobot: `document.querySelector('.is-changed')`,
			ordersView: `document.querySelector('.yaml')`,
			ordersView + "&tab=compare&at=" + beforeRobot:    `document.querySelector('.compare tbody tr')`,
			ordersView + "&tab=history":                      `document.querySelector('.versions li')`,
			ordersView + "&tab=blame":                        `document.querySelector('.blame tbody tr')`,
			"view=incident&actor=robot":                      `document.querySelector('.lane') && document.querySelector('.incident .pane')`,
			"view=access&verb=delete&ns=default&name=orders": `document.querySelector('.stages li')`,
			"view=policy&file=databases.cue":                 `document.querySelector('.cue .line')`,
			"view=health":                                    `document.querySelectorAll('.health table').length === 3`,
			"view=objects&kind=none.v1.&at=" + beforeRobot:   `document.querySelector('.problem')`,
		} {
			p.at(address)
			p.waitFor(ready)
			for _, finding := range p.axe() {
				t.Errorf("%s, %d pixels, %s: %.300s", address, size.width, size.scheme, finding)
			}
			if wide := eval[int64](p, "document.documentElement.scrollWidth"); wide > size.width {
				t.Errorf("%s is %d pixels wide on a screen of %d", address, wide, size.width)
			}
		}
	}
}

// A long list has few rows in the page, and its end is reached.
func TestALongListHasFewRowsInThePage(t *testing.T) {
	record(t)
	const many = 2000
	plane.must(t, "", "POST", "/api/v1/namespaces", `{"metadata":{"name":"many"}}`)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < many; i += 4 {
				plane.do(t, "", "POST", "/api/v1/namespaces/many/configmaps", "", fmt.Sprintf(`{"metadata":{"name":"entry-%05d"}}`, i))
			}
		})
	}
	group.Wait()
	p := open(t)
	p.at("view=objects&kind=configmaps.v1.&ns=many")
	p.waitForText(fmt.Sprintf("%d,%03d", many/1000, many%1000))
	for _, scroll := range []string{"0", "scrollHeight / 2", "scrollHeight"} {
		p.run(`{ const r = document.querySelector('.rows'); r.scrollTop = r.` + strings.Replace(scroll, "0", "scrollTop * 0", 1) + `; }`)
		p.waitFor(`document.querySelectorAll('.rows .body .row').length > 10 && document.querySelectorAll('.rows .body .row').length < 100`)
	}
	p.waitForText("entry-01999")
}

func TestAServerThatGoesAwayAndComesBack(t *testing.T) {
	record(t)
	p := open(t)
	p.at(databasesView)
	p.waitForText("billing")
	if err := plane.restart(func() { p.waitForText("The server is away.") }); err != nil {
		t.Fatal(err)
	}
	plane.must(t, "", "POST", databases, database("after", "small", 10))
	p.waitFor(`document.querySelector('.rows')?.textContent.includes('after') && !document.querySelector('.problem')`)
	plane.must(t, "", "DELETE", databases+"/after", "")
}

// TestThePictureOfTheDocumentation writes docs/console.png if it is asked for.
func TestThePictureOfTheDocumentation(t *testing.T) {
	record(t)
	p := open(t)
	p.do(chromedp.EmulateViewport(1280, 640))
	p.at(databasesView + "&ns=default&compare=1&at=" + beforeRobot)
	p.waitFor(`document.querySelector('.is-changed')`)
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(png) < 10_000 || len(png) > 200_000 {
		t.Errorf("the picture has %d bytes", len(png))
	}
	if *picture == "" {
		return
	}
	if err := os.WriteFile(*picture, png, 0o644); err != nil {
		t.Fatal(err)
	}
}
