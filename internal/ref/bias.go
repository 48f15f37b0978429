package ref

import "fmt"

// Biases are what is added to scores after the functions.
type Biases struct {
	Bias *Tensor // [B|1, Hq|1, Nq|1, Nk]
}

// BiasGradients are the gradients with respect to them, of their shapes; empty where there is none.
type BiasGradients struct {
	DBias Array
}

// BiasNames are their names, in the order of all.
var BiasNames = [...]string{"Bias"}

func (s *Biases) all() (all [len(BiasNames)]*Tensor) {
	for i, b := range s.Fields() {
		all[i] = *b
	}
	return all
}

// Fields are where they stand, in the order of BiasNames.
func (s *Biases) Fields() [len(BiasNames)]**Tensor { return [...]**Tensor{&s.Bias} }

// AllBiases lists the gradients in the order of BiasNames.
func (g *BiasGradients) AllBiases() [len(BiasNames)]*Array { return [...]*Array{&g.DBias} }

// biased says whether there is any.
func (s *Biases) biased() bool { return s.all() != [len(BiasNames)]*Tensor{} }

// checkBiases says which does not go with the problem.
func (p *Problem) checkBiases() error {
	for i, b := range p.all() {
		if b == nil {
			continue
		}
		if err := b.check(BiasNames[i]); err != nil {
			return err
		}
		if !broadcasts(b.B, p.Q.B) || !broadcasts(b.H, p.Q.H) || !broadcasts(b.N, p.Q.N) || b.D != p.K.N {
			return fmt.Errorf("ref: %s [%d %d %d %d] does not broadcast to [%d %d %d %d]", BiasNames[i], b.B, b.H, b.N, b.D, p.Q.B, p.Q.H,
				p.Q.N, p.K.N)
		}
	}
	return nil
}

// addBiases adds those of a row and a key to a score.
func addBiases[T float32 | float64](s *Biases, to *T, r Row, j int) {
	for _, b := range s.all() {
		if b != nil {
			*to += T(b.broadcastRow(r.B, r.H, r.I)[j])
		}
	}
}

// newBiasGradients makes room for the gradients.
func (s *Biases) newBiasGradients() (g BiasGradients) {
	for i, b := range s.all() {
		if b != nil {
			*g.AllBiases()[i] = NewArray(b.B, b.H, b.N, b.D)
		}
	}
	return g
}

// addTo adds the gradient with respect to the score of a row and a key to those by its biases.
func (s *Biases) addTo(g *BiasGradients, r Row, j int, ds float64) {
	for i, b := range s.all() {
		if b != nil {
			g.AllBiases()[i].Row(first(r.B, b.B), first(r.H, b.H), first(r.I, b.N))[j] += ds
		}
	}
}
