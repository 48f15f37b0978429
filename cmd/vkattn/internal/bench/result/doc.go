// Package result is what sweeps ask and what result files hold, without a device: cases of attention by a table of axes, and rows by a
// table of columns. Package bench measures, package report shows.
//
// Files read downwards, each using those above it:
//
//	numbers   stats, format, lines, stream
//	one case  tuning, parse, implementation, passes, case, lengths, cache, scores, density, problem
//	many      grid, axis, axes, identity, expand, job, suite
//	rows      parts, header, figures, row, rounds, column, columns, rowjson, ringrow
//	files     file, outfile
package result
