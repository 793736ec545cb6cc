package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// moveToSmallDisk moves a folder to a file system of its own with little room. The function that it returns gives that more room.
func moveToSmallDisk(t *testing.T, folder, size string) (enlarge func()) {
	t.Helper()
	before := folder + ".before"
	require.NoError(t, os.Rename(folder, before))
	require.NoError(t, os.Mkdir(folder, 0o700))
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	text, err := exec.Command("cp", "-a", before+"/.", folder).CombinedOutput()
	require.NoError(t, err, string(text))
	return func() {
		require.NoError(t, syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	}
}

// span is the time of a request, or of a gap.
type span struct{ from, to time.Time }

// TestAServerIsKilledOnAFullDisk fills the disks of the audit file and of the decision log, and kills the server, three times. Writes go
// on, and when there is room again the audit file has each acknowledged write exactly once, and each refusal is in it or in a gap.
func TestAServerIsKilledOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	server := startServer(t, dir)
	var told []string
	refused := map[string]span{}
	n := 0
	create := func(count int) {
		t.Helper()
		dbs := dynamicClient(t, clientConfig(t, dir))
		for range count {
			n++
			made, err := dbs.Create(t.Context(), database(fmt.Sprint("db-", n), 1), metav1.CreateOptions{})
			require.NoError(t, err)
			told = append(told, made.GetResourceVersion())
		}
	}
	refuse := func(prefix string, count int) {
		t.Helper()
		for range count {
			id := fmt.Sprint(prefix, len(refused))
			config := clientConfig(t, dir)
			config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				return auditIDs{rt, func() string { return id }}
			})
			began := time.Now()
			_, err := dynamicClient(t, config).Create(t.Context(), database("bad", -1), metav1.CreateOptions{})
			require.Equal(t, http.StatusUnprocessableEntity, statusOf(err), err)
			refused[id] = span{began, time.Now()}
		}
	}
	fails := func(check string) bool {
		t.Helper()
		config := clientConfig(t, dir)
		client, err := rest.HTTPClientFor(config)
		require.NoError(t, err)
		r, err := client.Get(config.Host + "/readyz/" + check)
		require.NoError(t, err)
		defer r.Body.Close()
		return r.StatusCode != http.StatusOK
	}
	create(5)
	refuse("early-", 5)
	seen := func(c *assert.CollectT) {
		var revisions, ids []string
		for _, e := range auditFile(t, dir) {
			revisions, ids = append(revisions, e.Annotations["stele.dev/revision"]), append(ids, string(e.AuditID))
		}
		for _, revision := range told {
			assert.Contains(c, revisions, revision)
		}
		for id := range refused {
			if strings.HasPrefix(id, "early-") || strings.HasPrefix(id, "late-") {
				assert.Contains(c, ids, id)
			}
		}
	}
	require.EventuallyWithT(t, seen, time.Minute, 100*time.Millisecond)
	require.NoError(t, server.end(syscall.SIGKILL))

	enlargeAudit := moveToSmallDisk(t, filepath.Join(dir, "stele-data", "audit"), "256k")
	enlargeDecisions := moveToSmallDisk(t, filepath.Join(dir, "stele-data", "decisions"), "512k")
	for round := range 2 {
		server = startServer(t, dir)
		require.Eventually(t, func() bool {
			create(20)
			refuse(fmt.Sprintf("full-%d-", round), 5)
			return fails("audit")
		}, time.Minute, time.Millisecond, "the disk is not full")
		create(10)
		require.NoError(t, server.end(syscall.SIGKILL))
	}
	filler, err := os.Create(filepath.Join(dir, "stele-data", "decisions", "filler"))
	require.NoError(t, err)
	_, _ = filler.Write(make([]byte, 1<<20)) // as much as there is room for
	require.NoError(t, filler.Close())
	server = startServer(t, dir)
	require.Eventually(t, func() bool {
		refuse("lost-", 5)
		return fails("decisions")
	}, time.Minute, time.Millisecond, "the decision log is not full")
	create(10)
	require.NoError(t, server.end(syscall.SIGKILL))

	require.NoError(t, os.Remove(filler.Name()))
	enlargeAudit()
	enlargeDecisions()
	server = startServer(t, dir)
	create(5)
	refuse("late-", 5)
	require.EventuallyWithT(t, seen, time.Minute, 100*time.Millisecond)
	require.NoError(t, server.end(syscall.SIGTERM))
	times, recorded := map[string]int{}, map[string]bool{}
	var gaps []span
	for _, e := range auditFile(t, dir) {
		times[e.Annotations["stele.dev/revision"]+"/"+e.Annotations["stele.dev/decision-revision"]+"/"+string(e.Stage)]++
		recorded[string(e.AuditID)] = true
		if e.Annotations["stele.dev/lost"] != "" {
			gaps = append(gaps, span{e.RequestReceivedTimestamp.Time, e.StageTimestamp.Time.Add(time.Microsecond)}) // times are cut to microseconds
		}
	}
	for line, count := range times {
		assert.Equal(t, 1, count, line)
	}
	for _, revision := range told {
		assert.Equal(t, 1, times[revision+"//ResponseComplete"], "revision %s", revision)
	}
	lost := 0
	for id, request := range refused {
		if recorded[id] {
			continue
		}
		lost++
		assert.True(t, slices.ContainsFunc(gaps, func(gap span) bool { return gap.from.Before(request.to) && gap.to.After(request.from) }),
			"%s is neither recorded nor in a gap: %v, %v", id, request, gaps)
	}
	assert.Positive(t, lost, "the full disk lost no decision")
	t.Logf("%d writes, %d lines, %d refusals, of which %d are lost, %d gaps", len(told), len(times), len(refused), lost, len(gaps))
}

// TestTheDiskBecomesFullAtOnce takes all of the disk between two looks of the server at it, under load, and kills the server then. It
// reads on, starts without a free byte, and writes again when there is room. Nothing acknowledged is lost.
func TestTheDiskBecomesFullAtOnce(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "stele-data")
	server := startServer(t, dir)
	require.NoError(t, server.end(syscall.SIGTERM))
	moveToSmallDisk(t, data, "560m")
	server = startServer(t, dir, "--min-free-disk", "128Mi")
	listen := []string{"--min-free-disk", "128Mi", "--listen", strings.TrimPrefix(clientConfig(t, dir).Host, "https://")}

	var mu sync.Mutex
	var acknowledged []string
	var writers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for w := range 8 {
		dbs := dynamicClient(t, clientConfig(t, dir))
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("db-%d-%d", w, n)
				if _, err := dbs.Create(ctx, database(name, 1), metav1.CreateOptions{}); err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, name)
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(time.Second)
	fill := func() {
		t.Helper()
		filler, err := os.OpenFile(filepath.Join(data, "filler"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		for part := make([]byte, 4<<20); len(part) > 0; {
			if _, err := filler.Write(part); err != nil {
				part = part[:len(part)/2] // as much as there is room for
			}
		}
		require.NoError(t, filler.Close())
	}
	reads := func() int {
		t.Helper()
		list, err := dynamicClient(t, clientConfig(t, dir)).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(list.Items)
	}
	fill()
	time.Sleep(3 * time.Second)
	reads()
	stop()
	writers.Wait()
	require.NoError(t, server.end(syscall.SIGKILL))

	fill()
	startServer(t, dir, listen...)
	reads()
	require.NoError(t, os.Remove(filepath.Join(data, "filler")))
	dbs := dynamicClient(t, clientConfig(t, dir))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := dbs.Create(t.Context(), database("after", 1), metav1.CreateOptions{})
		assert.NoError(c, err)
	}, time.Minute, 100*time.Millisecond)
	for _, name := range acknowledged {
		_, err := dbs.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
	}
	t.Logf("%d writes were acknowledged", len(acknowledged))
}
