// Flight distances and their summary per carrier: the SYCL kernels of the demo, shared by Python and Rust. The host
// replaces the word REAL by a built-in type (f64 where the device has it, else f32) before the text is compiled.
//
// Columns are laid out as in Arrow: text is an index into a dictionary, and where numbers may be missing a bitmap says
// which are there. What a missing number's place holds has no meaning, and is not read.
#include <usmq/kernel.h>

// IUGG mean radius, 6371.0088 km, in statute miles.
constexpr REAL earth_radius_miles = REAL(3958.7613);
constexpr REAL radians_per_degree = REAL(0.017453292519943295);
constexpr REAL not_a_number = REAL(__builtin_nan(""));

static REAL square(REAL x) { return x * x; }

// A bit of a bitmap, the lowest bit of each byte first.
static bool is_set(const unsigned char *bitmap, size_t bit) { return bitmap[bit / 8] >> (bit % 8) & 1; }

// Great-circle distance in miles of every flight (haversine). lat and lon are in degrees, by airport. origin and dest
// are indices into dictionaries of airport codes, and origin_airport and dest_airport have the airport of each code,
// negative for one without coordinates: the distance is then NaN.
USMQ_KERNEL(1)
void great_circle(const REAL *lat, const REAL *lon, const int *origin, const int *dest, const int *origin_airport,
                  const int *dest_airport, REAL *miles, size_t flights) {
  size_t i = global_id(0);
  if (i >= flights)
    return;
  int a = origin_airport[origin[i]], b = dest_airport[dest[i]];
  if (a < 0 || b < 0) {
    miles[i] = not_a_number;
    return;
  }
  REAL lat_a = lat[a] * radians_per_degree, lat_b = lat[b] * radians_per_degree;
  REAL half_lon = (lon[b] - lon[a]) * radians_per_degree / 2;
  REAL h = square(sin((lat_b - lat_a) / 2)) + cos(lat_a) * cos(lat_b) * square(sin(half_lon));
  // Rounding can push h of antipodes above 1, where asin is NaN.
  miles[i] = 2 * earth_radius_miles * asin(sqrt(fmin(h, REAL(1))));
}

// Per worker and row: {flights, known delays, known errors} and {sum of delays, sum of |distance error|}. There is one
// row for each carrier and a last one for all of them. carrier is an index into a dictionary of carriers. The bitmaps
// of delay and recorded begin at the bits named. Each worker owns its rows, so there are no atomics and the order of
// the additions, hence the result, is the same in every run.
USMQ_KERNEL(1)
void carrier_partials(const int *carrier, const REAL *delay, const unsigned char *delay_valid, size_t delay_bit,
                      const REAL *recorded, const unsigned char *recorded_valid, size_t recorded_bit, const REAL *miles,
                      int *counts, REAL *sums, size_t flights, size_t workers, size_t carriers) {
  size_t worker = global_id(0);
  if (worker >= workers)
    return;
  size_t rows = carriers + 1;
  int *my_counts = counts + worker * rows * 3;
  REAL *my_sums = sums + worker * rows * 2;
  for (size_t k = 0; k < rows * 3; ++k)
    my_counts[k] = 0;
  for (size_t k = 0; k < rows * 2; ++k)
    my_sums[k] = 0;
  for (size_t i = worker; i < flights; i += workers) {
    bool has_delay = is_set(delay_valid, delay_bit + i);
    bool has_error = is_set(recorded_valid, recorded_bit + i) && !isnan(miles[i]);
    REAL late = has_delay ? delay[i] : REAL(0);
    REAL error = has_error ? fabs(miles[i] - recorded[i]) : REAL(0);
    const size_t added_to[] = {size_t(carrier[i]), carriers};
    for (size_t row : added_to) {
      my_counts[row * 3 + 0] += 1;
      my_counts[row * 3 + 1] += has_delay ? 1 : 0;
      my_counts[row * 3 + 2] += has_error ? 1 : 0;
      my_sums[row * 2 + 0] += late;
      my_sums[row * 2 + 1] += error;
    }
  }
}

// One item per row adds what the workers found, into one column after the other; a mean over nothing is NaN.
USMQ_KERNEL(1)
void carrier_totals(const int *counts, const REAL *sums, int *total_counts, REAL *means, size_t workers,
                    size_t carriers) {
  size_t row = global_id(0);
  size_t rows = carriers + 1;
  if (row >= rows)
    return;
  int count[3] = {0, 0, 0};
  REAL sum[2] = {0, 0};
  for (size_t worker = 0; worker < workers; ++worker) {
    size_t at = worker * rows + row;
    for (int k = 0; k < 3; ++k)
      count[k] += counts[at * 3 + k];
    for (int k = 0; k < 2; ++k)
      sum[k] += sums[at * 2 + k];
  }
  for (int k = 0; k < 3; ++k)
    total_counts[k * rows + row] = count[k];
  // count[1] and count[2] are the known delays and the known errors: what sum[0] and sum[1] were added from.
  for (int k = 0; k < 2; ++k)
    means[k * rows + row] = count[k + 1] ? sum[k] / count[k + 1] : not_a_number;
}
