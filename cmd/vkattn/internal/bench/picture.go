package bench

// Picture is a line of a result file that vkattn map adds: a picture that a report shows beside its figures.
type Picture struct {
	Title   string   `json:"map"`
	Caption []string `json:"caption,omitempty"`
	PNG     []byte   `json:"png"`
}
