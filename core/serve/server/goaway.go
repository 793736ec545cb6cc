package server

import (
	"fmt"
	"math/rand/v2"
	"net/http"
)

// MaxGoawayChance is the largest chance of [WithGoaway], as in kube-apiserver.
const MaxGoawayChance = 0.02

// CheckGoawayChance returns an error if a chance is not between 0 and [MaxGoawayChance].
func CheckGoawayChance(chance float64) error {
	if !(chance >= 0 && chance <= MaxGoawayChance) {
		return fmt.Errorf("%v: want a number from 0 to %v", chance, MaxGoawayChance)
	}
	return nil
}

// WithGoaway answers a random share of the requests of HTTP/2 with a GOAWAY frame, as kube-apiserver does with
// --goaway-chance. The client then opens another connection, which a balancer gives to any replica. Requests in flight
// and watches end on the old connection as they would have. With a chance of 0 it returns next.
func WithGoaway(next http.Handler, chance float64) http.Handler {
	if chance <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && rand.Float64() < chance {
			w.Header().Set("Connection", "close") // net/http sends a GOAWAY for it
		}
		next.ServeHTTP(w, r)
	})
}
